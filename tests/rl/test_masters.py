"""Small steps are kept: a bfloat16 model learns like a float32 one, whatever the engine, resume included."""

import numpy as np
import pytest
import torch

from rl.checkpoint import CheckpointError, Checkpoints, TrainState
from rl.learner.engine import NonFiniteError, OptimOptions
from rl.learner.learner import BatchOptions
from rl.learner.loss import LossOptions
from rl.learner.masters import Masters
from rl.learner.torch_engine import MASTERS_FILE, TorchEngine
from rl.rows.assemble import step_table
from tests.rl.helpers import VOCAB, make_learner, random_groups, score_with
from tests.toy import tiny_model, toy_tokenizer

LR, UPDATES = 1e-6, 6
LOSS = LossOptions(entropy_coef=0.01)
BATCHES = BatchOptions(minibatches=2, token_budget=200)


@pytest.fixture(scope="module")
def batch():
    groups = random_groups(groups=3, size=4)
    advantage = np.random.default_rng(1).normal(size=len(step_table(groups)))
    return score_with(tiny_model(VOCAB, std=0.3), groups), advantage


def rounded_model():
    """bfloat16 weights, the usual size of initial weights apart from a peaked output."""
    return tiny_model(VOCAB, std=0.3).to(torch.bfloat16)


def trained(model, batch, *, updates=UPDATES, lr=LR):
    """A learner after so many updates."""
    learner = make_learner(model, loss=LOSS, batches=BATCHES, lr=lr)
    for update in range(1, updates + 1):
        learner.update(*batch, update=update)
    return learner


def moved(before, after):
    """Share of the elements that differ."""
    pairs = [(before[name].float(), after[name].float()) for name in before]
    return sum(int((a != b).sum()) for a, b in pairs) / sum(a.numel() for a, _ in pairs)


def masters_of(learner):
    return {name: copy.clone() for name, copy in learner.engine._masters.state().items()}


def test_small_steps_move_the_masters_as_they_move_float32_weights(batch):
    """Six updates at lr 1e-6: added to bfloat16 weights themselves, nearly all of them would be lost."""
    start = {name: p.detach().clone() for name, p in rounded_model().named_parameters()}
    masters = masters_of(trained(rounded_model(), batch))
    exact = dict(trained(rounded_model().float(), batch).named_weights())
    assert moved(start, exact) > 0.9
    assert moved(start, masters) == pytest.approx(moved(start, exact), abs=0.02)
    # the same steps as float32, but for gradients that bfloat16 passes made
    ways = [
        (torch.cat([(x[n].float() - start[n].float()).flatten() for n in start])) for x in (masters, exact)
    ]
    assert torch.corrcoef(torch.stack(ways))[0, 1] > 0.9
    assert ways[0].norm() == pytest.approx(float(ways[1].norm()), rel=0.1)


def test_without_masters_the_same_steps_are_lost(batch, monkeypatch):
    """The fault that the test above would catch, and what `train/weights_changed` would say of it."""
    monkeypatch.setattr("rl.learner.torch_engine.Masters", NoMasters)
    start = {name: p.detach().clone() for name, p in rounded_model().named_parameters()}
    learner = trained(rounded_model(), batch)
    assert moved(start, dict(learner.named_weights())) < 0.1


class NoMasters:
    """The optimiser on the model's own weights."""

    def __init__(self, model):
        self.trained = list(model.parameters())

    def give(self):
        """Nothing to give."""


def test_the_model_holds_the_rounded_masters_and_the_policy_gets_them(batch):
    learner = trained(rounded_model(), batch, lr=1e-3)
    masters = masters_of(learner)
    weights = dict(learner.named_weights())
    assert list(weights) == list(masters)
    for name, weight in weights.items():
        assert weight.dtype == torch.bfloat16 and torch.equal(weight, masters[name].bfloat16()), name
    assert any(not torch.equal(masters[name], weight.float()) for name, weight in weights.items())


def test_gradients_of_micro_batches_are_summed_in_float32(batch):
    """256 gradients of 1 and then 32 of 2^-8: bfloat16 would stay at 256."""
    model = rounded_model()
    engine = TorchEngine(model, OptimOptions(grad_clip=1e9))
    weight = model.model.norm.weight
    for size, times in ((1.0, 256), (2.0**-8, 32)):
        for _ in range(times):
            engine.backward(weight.sum() * size, last=False)
    assert weight.grad is None  # it has moved on
    assert engine.step(0.0) == pytest.approx((256 + 1 / 8) * len(weight) ** 0.5, rel=1e-6)


def test_float32_weights_have_no_masters():
    assert not Masters(tiny_model(VOCAB)).state()


def test_a_gradient_that_is_not_finite_touches_neither_weights_nor_masters(batch):
    learner = trained(rounded_model(), batch, updates=1, lr=1e-3)
    before, weights = masters_of(learner), {n: w.clone() for n, w in learner.named_weights()}
    weight = learner.engine.model.model.norm.weight
    learner.engine.backward((weight * float("inf")).sum(), last=True)
    with pytest.raises(NonFiniteError, match="gradient norm"):
        learner.engine.step(1e-3)
    assert all(torch.equal(copy, before[name]) for name, copy in masters_of(learner).items())
    assert all(torch.equal(weight, weights[name]) for name, weight in learner.named_weights())
    assert learner.engine.step(1e-3) == 0.0  # nothing was left behind


def test_a_resume_goes_on_to_the_bit(batch, tmp_path):
    """Two updates, a checkpoint, two more; against four in one go. The masters differ from their weights."""
    whole = trained(rounded_model(), batch, updates=4)
    first = trained(rounded_model(), batch, updates=2)
    checkpoints = Checkpoints(tmp_path, keep=1, tokenizer=toy_tokenizer(), config={})
    path = checkpoints.save(first, TrainState(update=2))
    again = make_learner(tiny_model(VOCAB, std=0.3, seed=5).bfloat16(), loss=LOSS, batches=BATCHES, lr=LR)
    checkpoints.restore(path, again)
    for update in (3, 4):
        again.update(*batch, update=update)
    assert all(torch.equal(copy, masters_of(again)[name]) for name, copy in masters_of(whole).items())
    assert all(
        torch.equal(a, b) for (_, a), (_, b) in zip(whole.named_weights(), again.named_weights(), strict=True)
    )
    rounded = trained(rounded_model(), batch, updates=2)
    weights = rounded.engine._masters._weights.values()
    rounded.engine._masters.take({w: w for w in weights})  # the fault: masters made anew from what is rounded
    for update in (3, 4):
        rounded.update(*batch, update=update)
    assert any(not torch.equal(c, masters_of(rounded)[name]) for name, c in masters_of(whole).items())


def test_a_checkpoint_from_before_there_were_masters_is_refused(batch, tmp_path):
    learner = trained(rounded_model(), batch, updates=1)
    checkpoints = Checkpoints(tmp_path, keep=1, tokenizer=toy_tokenizer(), config={})
    path = checkpoints.save(learner, TrainState(update=1))
    (path / MASTERS_FILE).unlink()
    with pytest.raises(
        CheckpointError, match=f"holds no masters.pt.*new run from its weights .model.path={path}"
    ):
        checkpoints.restore(path, learner)


def test_loaded_weights_reach_the_masters(batch):
    learner = make_learner(rounded_model(), loss=LOSS, batches=BATCHES, lr=1e-3)
    other = {name: p.detach().clone() for name, p in tiny_model(VOCAB, std=0.3, seed=4).named_parameters()}
    learner.engine.load_weights(other)
    learner.update(*batch, update=1)
    for name, weight in learner.named_weights():
        assert (weight.float() - other[name]).abs().max() < 2e-2, name


def sharded(stage, batch):
    """A DeepSpeed learner after the same updates."""
    from rl.learner.deepspeed_engine import DeepSpeedEngine

    learner = make_learner(rounded_model(), loss=LOSS, batches=BATCHES, lr=LR)
    learner.engine = DeepSpeedEngine(rounded_model(), OptimOptions(), zero_stage=stage)
    for update in range(1, UPDATES + 1):
        learner.update(*batch, update=update)
    return learner


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_deepspeed_keeps_small_steps_too(batch, stage):
    """The rounded weights that change within six updates are those of the torch engine's masters."""
    pytest.importorskip("deepspeed")
    start = {name: p.detach().clone() for name, p in rounded_model().named_parameters()}
    ours = moved(start, dict(trained(rounded_model(), batch).named_weights()))
    theirs = {name: weight.clone() for name, weight in sharded(stage, batch).named_weights()}
    assert {weight.dtype for weight in theirs.values()} == {torch.bfloat16}
    assert moved(start, theirs) == pytest.approx(ours, rel=0.1)
