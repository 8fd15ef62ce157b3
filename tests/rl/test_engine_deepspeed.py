"""DeepSpeed against the torch engine: the same batches give the same weights, and a resume the same again."""

import copy
import math

import numpy as np
import pytest
import torch

from rl.checkpoint import Checkpoints, TrainState
from rl.learner.engine import NonFiniteError, OptimOptions, StateError
from rl.learner.learner import BatchOptions, Learner
from rl.learner.loss import LossOptions
from rl.learner.schedule import LearningRate
from rl.learner.torch_engine import TorchEngine
from rl.rows.assemble import step_table
from tests.rl.helpers import VOCAB, random_groups, score_with
from tests.toy import tiny_model, toy_tokenizer

pytest.importorskip("deepspeed")
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")
OPTIONS = OptimOptions(grad_clip=0.5)


def make_batch():
    groups = random_groups(groups=3, size=4)
    advantage = np.random.default_rng(1).normal(size=len(step_table(groups)))
    return score_with(tiny_model(VOCAB, std=0.3), groups), advantage


@pytest.fixture(scope="module")
def batch():
    return make_batch()


def make_engine(name, model):
    if name == "torch":
        return TorchEngine(model, OPTIONS)
    from rl.learner.deepspeed_engine import DeepSpeedEngine

    return DeepSpeedEngine(model, OPTIONS, zero_stage=int(name[-1]))


def make(name):
    return Learner(
        make_engine(name, tiny_model(VOCAB, std=0.3)),
        loss=LossOptions(entropy_coef=0.01),
        batches=BatchOptions(minibatches=2, token_budget=200),
        lr=LearningRate(1e-3, warmup=2),
        temperature=1.0,
        seed=0,
    )


def weights(learner):
    return {name: tensor.clone() for name, tensor in learner.named_weights()}


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_same_batches_same_weights(batch, stage):
    plain, sharded = make("torch"), make(f"zero{stage}")
    for update in (1, 2, 3):
        expected, got = plain.update(*batch, update=update), sharded.update(*batch, update=update)
        for name in expected:
            if not name.startswith("speed/"):
                assert math.isclose(got[name], expected[name], rel_tol=1e-4, abs_tol=1e-6), name
        assert expected["train/optimizer_steps"] == 2
    ours, theirs = weights(plain), weights(sharded)
    assert list(ours) == list(theirs)
    for name, tensor in ours.items():
        torch.testing.assert_close(theirs[name], tensor, atol=1e-6, rtol=0.0)
    moved = tiny_model(VOCAB, std=0.3).state_dict()
    assert max((ours[name] - moved[name]).abs().max() for name in ours) > 1e-3


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_a_checkpoint_from_before_the_first_step_goes_on_too(batch, stage, tmp_path):
    """As of a starting policy that is kept as the best so far."""
    fresh, again = make(f"zero{stage}"), make(f"zero{stage}")
    checkpoints = Checkpoints(tmp_path, keep=1, tokenizer=toy_tokenizer(), config={})
    path = checkpoints.save(fresh, TrainState())
    assert checkpoints.restore(path, again) == TrainState()
    for learner in (fresh, again):
        learner.update(*batch, update=1)
    for name, tensor in weights(fresh).items():
        assert torch.equal(weights(again)[name], tensor), name


@pytest.mark.parametrize("stage", [1, 3])
def test_resume_goes_on_as_if_nothing_had_happened(batch, stage, tmp_path):
    first = make(f"zero{stage}")
    first.update(*batch, update=1)
    first.engine.save(tmp_path)
    kept = copy.deepcopy(weights(first))
    first.update(*batch, update=2)
    second = make(f"zero{stage}")
    second.engine.load_weights(kept)
    assert all(torch.equal(tensor, kept[name]) for name, tensor in weights(second).items())
    second.engine.load(tmp_path)
    second.update(*batch, update=2)
    got = weights(second)
    assert all(torch.equal(tensor, got[name]) for name, tensor in weights(first).items())
    with pytest.raises(StateError, match="holds no DeepSpeed state"):
        second.engine.load(tmp_path / "nothing")


def test_loaded_weights_reach_the_master_copy(batch):
    """A step after `load_weights` starts from them, not from what the optimiser remembered."""
    learner = make("zero1")
    other = {name: tensor.clone() for name, tensor in tiny_model(VOCAB, std=0.3, seed=4).named_parameters()}
    learner.engine.load_weights(other)
    learner.update(*batch, update=1)
    assert max((tensor - other[name]).abs().max() for name, tensor in weights(learner).items()) < 5e-3
    with pytest.raises(KeyError, match=r"no weight named 'model.embed_tokens.weight' among the 0"):
        learner.engine.load_weights({})


@pytest.mark.parametrize("stage", [0, 1])
def test_a_gradient_that_is_not_finite_is_refused(batch, stage):
    learner = make(f"zero{stage}")
    before = weights(learner)
    rows, advantage = batch
    row = rows[0]
    ids = torch.from_numpy(row.ids[:-1]).long()
    logp_T, _ = learner.engine.module(ids, [len(ids)], torch.tensor([1]), torch.tensor([2]), 1.0)
    learner.engine.backward(logp_T.sum() * float("inf"), last=True)
    with pytest.raises(NonFiniteError, match="gradient norm"):
        learner.engine.step(1e-3)
    assert all(torch.equal(tensor, before[name]) for name, tensor in weights(learner).items())
    assert learner.update(rows, advantage, update=1)["train/grad_norm"] > 0


@pytest.mark.parametrize("stage", [1, 3])
def test_a_checkpoint_is_the_same_model_folder(batch, stage, tmp_path):
    from transformers import AutoModelForCausalLM

    learner = make(f"zero{stage}")
    learner.update(*batch, update=1)
    checkpoints = Checkpoints(tmp_path, keep=1, tokenizer=toy_tokenizer(), config={})
    path = checkpoints.save(learner, TrainState(update=1))
    loaded = AutoModelForCausalLM.from_pretrained(path).state_dict()
    assert all(torch.equal(tensor, loaded[name]) for name, tensor in weights(learner).items())
    again = make(f"zero{stage}")
    assert checkpoints.restore(path, again) == TrainState(update=1)
    for one in (learner, again):
        one.update(*batch, update=2)
    got = weights(again)
    assert all(torch.equal(tensor, got[name]) for name, tensor in weights(learner).items())
