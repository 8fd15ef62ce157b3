"""Adapters beside bfloat16 weights: they multiply in bfloat16, small steps are kept, and old runs go on."""

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from rl.checkpoint import CheckpointError, Checkpoints, TrainState
from rl.learner.engine import OptimOptions
from rl.learner.lora import LoraOptions, adapter_parameters, add_adapters
from rl.learner.torch_engine import MASTERS_FILE, TorchEngine
from rl.rows.assemble import step_table
from tests.rl.helpers import VOCAB, make_learner, random_groups, score_with
from tests.toy import tiny_model, toy_tokenizer

LR = 1e-5


@pytest.fixture(scope="module")
def batch():
    groups = random_groups(groups=3, size=4)
    advantage = np.random.default_rng(1).normal(size=len(step_table(groups)))
    return score_with(tiny_model(VOCAB, std=0.3), groups), advantage


def adapted(*, old=False, seed=0):
    """With adapters; `old`: float32 ones beside bfloat16 weights, as they once were."""
    model = tiny_model(VOCAB, std=0.3).bfloat16()
    add_adapters(model, LoraOptions(4, alpha=8.0), seed=seed)
    if old:
        for parameter in adapter_parameters(model).values():
            parameter.data = parameter.data.float()
    return model


def learner_of(model, stage=None):
    learner = make_learner(model if stage is None else adapted(), lr=LR)
    if stage is not None:
        pytest.importorskip("deepspeed")
        from rl.learner.deepspeed_engine import DeepSpeedEngine

        learner.engine = DeepSpeedEngine(model, OptimOptions(), zero_stage=stage)
    return learner


def trained(model, batch, updates=2, stage=None):
    learner = learner_of(model, stage)
    for update in range(1, updates + 1):
        learner.update(*batch, update=update)
    return learner


def checkpoints_in(folder):
    return Checkpoints(folder, keep=1, tokenizer=toy_tokenizer(), config={})


def flat(weights):
    return torch.cat([weight.detach().float().flatten() for weight in weights])


def test_adapters_multiply_in_the_type_of_the_weights(batch):
    """What is recorded is the type of every matrix product of a forward and backward pass."""
    products = (torch.ops.aten.mm.default, torch.ops.aten.addmm.default, torch.ops.aten.bmm.default)
    seen = []

    class Products(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            if function in products:
                seen.extend(one.dtype for one in args if isinstance(one, torch.Tensor))
            return function(*args, **(kwargs or {}))

    with Products():
        trained(adapted(), batch, updates=1)
    assert len(seen) > 20 and set(seen) == {torch.bfloat16}


def test_small_steps_move_the_masters_as_they_move_float32_adapters(batch):
    """Steps of 1e-5 on A, whose elements bfloat16 keeps to about 1e-3."""
    start = [p.detach().clone() for p in adapter_parameters(adapted()).values()]
    masters = list(trained(adapted(), batch, updates=6).engine._masters.state().values())
    exact = list(adapter_parameters(trained(adapted(old=True), batch, updates=6).engine.model).values())
    ways = torch.stack([flat(x) - flat(start) for x in (masters, exact)])
    assert torch.corrcoef(ways)[0, 1] > 0.95
    assert ways[0].norm() == pytest.approx(float(ways[1].norm()), rel=0.05)


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("stage", [None, 0, 1, 2, 3])
def test_a_resume_goes_on_to_the_bit(batch, tmp_path, stage):
    """Six small steps with a checkpoint amid: the masters could not be made again of what is rounded."""
    whole = trained(adapted(), batch, updates=6, stage=stage)
    first = trained(adapted(), batch, updates=3, stage=stage)
    path = checkpoints_in(tmp_path).save(first, TrainState(update=3))
    again = learner_of(adapted(seed=5), stage)
    checkpoints_in(tmp_path).restore(path, again)
    for update in (4, 5, 6):
        again.update(*batch, update=update)
    assert all(
        torch.equal(a, b)
        for (_, a), (_, b) in zip(whole.engine.adapter_weights(), again.engine.adapter_weights(), strict=True)
    )
    if stage is None:
        masters = again.engine._masters.state()
        assert all(torch.equal(w, masters[name]) for name, w in whole.engine._masters.state().items())


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize(("before_stage", "stage"), [(None, None), (1, 1), (2, 2), (3, 3), (2, 1)])
def test_a_checkpoint_of_float32_adapters_still_resumes(batch, tmp_path, before_stage, stage):
    old = trained(adapted(old=True), batch, updates=3, stage=before_stage)
    path = checkpoints_in(tmp_path).save(old, TrainState(update=3))
    before = flat(w for _, w in old.engine.adapter_weights())
    again = learner_of(adapted(seed=5), stage)
    checkpoints_in(tmp_path).restore(path, again)
    assert torch.equal(flat(w for _, w in again.engine.adapter_weights()), before.bfloat16().float())
    for learner in (old, again):
        for update in (4, 5, 6):
            learner.update(*batch, update=update)
    # Where the float32 values and the moments went on, so do the small steps, on nearly the same way.
    exact = flat(w for _, w in old.engine.adapter_weights())
    found = flat(w for _, w in again.engine.adapter_weights())
    assert (found - exact).abs().max() <= exact.abs().max() * 2**-8
    if stage is None:
        found = flat(again.engine._masters.state().values())
        assert torch.corrcoef(torch.stack([found - before, exact - before]))[0, 1] > 0.95


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_float32_adapters_without_zero_are_refused(batch, tmp_path):
    path = checkpoints_in(tmp_path).save(trained(adapted(old=True), batch, stage=0), TrainState(update=2))
    with pytest.raises(
        CheckpointError, match=f"float32 adapters.*new run from its weights .model.path={path}"
    ):
        checkpoints_in(tmp_path).restore(path, learner_of(adapted(), 0))


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("stage", [None, 0, 1, 2, 3])
def test_loaded_adapters_reach_the_masters(batch, stage):
    learner, other = learner_of(adapted(), stage), dict(learner_of(adapted(seed=3)).engine.adapter_weights())
    learner.engine.load_weights(other)
    learner.update(*batch, update=1)
    for name, weight in learner.engine.adapter_weights():
        torch.testing.assert_close(weight, other[name], rtol=2**-7, atol=2 * LR)


def test_rounded_adapters_without_their_masters_are_refused(batch, tmp_path):
    learner = trained(adapted(), batch, updates=1)
    path = checkpoints_in(tmp_path).save(learner, TrainState(update=1))
    (path / MASTERS_FILE).unlink()
    with pytest.raises(CheckpointError, match="holds no masters.pt"):
        checkpoints_in(tmp_path).restore(path, learner)
    assert isinstance(learner.engine, TorchEngine)
