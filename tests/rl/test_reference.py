"""The starting policy: whatever way it is kept, it scores as the untouched model does, to the bit."""

import copy

import numpy as np
import pytest
import torch

from commands.build.learner import starting_policy
from configs.load import load
from credit.pipeline import Pipeline
from credit.registry import build_stage
from rl.learner.engine import OptimOptions
from rl.learner.forward import ResponseModel, score_rows
from rl.learner.learner import BatchOptions, Learner
from rl.learner.lora import LoraOptions, add_adapters
from rl.learner.loss import LossOptions
from rl.learner.reference import FrozenCopy, OffloadedCopy, WithoutAdapters
from rl.learner.schedule import LearningRate
from rl.learner.torch_engine import TorchEngine
from rl.rows.assemble import step_table
from tests.rl.helpers import VOCAB, random_groups, score_with
from tests.toy import tiny_model

LOSS = LossOptions(kl_coef=0.1, entropy_coef=0.01)


@pytest.fixture(scope="module")
def batch():
    groups = random_groups(groups=3, size=4)
    advantage = np.random.default_rng(1).normal(size=len(step_table(groups)))
    return score_with(tiny_model(VOCAB, std=0.3), groups), advantage


def base(dtype=torch.float32):
    return tiny_model(VOCAB, std=0.3).to(dtype)


def scored(module, batch):
    return np.concatenate(score_rows(module, batch[0], temperature=1.0, token_budget=200))


def under(reference, batch):
    with reference.scoring() as module:
        return scored(module, batch)


def adapted_learner(kind, dtype=torch.float32, stage=None, lr=1e-2):
    """A learner of adapters with a KL term; `kind`: engine → reference."""
    model = base(dtype)
    add_adapters(model, LoraOptions(4, alpha=8.0))
    if stage is None:
        engine = TorchEngine(model, OptimOptions())
    else:
        pytest.importorskip("deepspeed")
        from rl.learner.deepspeed_engine import DeepSpeedEngine

        engine = DeepSpeedEngine(model, OptimOptions(), zero_stage=stage)
    return Learner(
        engine,
        loss=LOSS,
        batches=BatchOptions(minibatches=2, token_budget=200),
        lr=LearningRate(lr),
        temperature=1.0,
        seed=0,
        reference=kind(engine),
    )


def adapters(learner):
    return {name: weight.clone() for name, weight in learner.engine.adapter_weights()}


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("stage", [None, 0, 1, 2, 3])
def test_without_its_adapters_a_trained_model_is_the_starting_policy(batch, dtype, stage):
    learner = adapted_learner(WithoutAdapters, dtype, stage)
    expected = scored(ResponseModel(base(dtype)), batch)
    for update in (1, 2):
        assert np.array_equal(under(learner.reference, batch), expected)
        learner.update(*batch, update=update)
    now = np.concatenate(learner.logps(batch[0]))
    assert np.abs(now - expected).max() > 0.01  # the adapters are on again, and have learned
    assert np.array_equal(under(learner.reference, batch), expected)


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("stage", [None, 2, 3])
def test_it_trains_as_a_second_copy_would(batch, stage):
    copied = FrozenCopy(base())
    learners = [adapted_learner(kind, stage=stage) for kind in (lambda engine: copied, WithoutAdapters)]
    for update in (1, 2):
        reported = [learner.update(*batch, update=update) for learner in learners]
        assert reported[0]["train/kl_ref"] == reported[1]["train/kl_ref"]
    assert reported[0]["train/kl_ref"] > 0
    expected = adapters(learners[0])
    assert all(torch.equal(weight, expected[name]) for name, weight in adapters(learners[1]).items())


def test_adapters_are_on_again_after_a_failure(batch):
    learner = adapted_learner(WithoutAdapters)
    learner.update(*batch, update=1)
    before = np.concatenate(learner.logps(batch[0]))
    with pytest.raises(RuntimeError), learner.reference.scoring():
        raise RuntimeError
    assert np.array_equal(np.concatenate(learner.logps(batch[0])), before)


class Card:
    """A second place for weights, which notes what lies there."""

    def __init__(self):
        self.moved = []

    def __call__(self, weight):
        self.moved.append(weight.clone())
        return self.moved[-1]


def test_an_offloaded_copy_is_on_the_card_only_while_it_scores(batch):
    model, card = base(), Card()
    weights = list(model.parameters())
    offloaded = OffloadedCopy(model, card)
    resting = [weight.data_ptr() for weight in weights]
    expected = under(FrozenCopy(base()), batch)
    for times in (1, 2):
        with offloaded.scoring() as module:
            assert [w.data_ptr() for w in weights] == [w.data_ptr() for w in card.moved[-len(weights) :]]
            assert np.array_equal(scored(module, batch), expected)
        assert len(card.moved) == times * len(weights)
        assert [weight.data_ptr() for weight in weights] == resting
    with pytest.raises(RuntimeError), offloaded.scoring():
        raise RuntimeError
    assert [weight.data_ptr() for weight in weights] == resting
    assert not any(weight.requires_grad for weight in weights)


@pytest.mark.parametrize(
    ("overrides", "kind"),
    [
        ([], FrozenCopy),
        (["train.reference=cpu"], OffloadedCopy),
        (["model.lora.r=4"], WithoutAdapters),
        (["train.kl_coef=0"], type(None)),
    ],
)
def test_the_configuration_chooses(overrides, kind, monkeypatch):
    config = load("alfworld_cpu", ["train.kl_coef=0.1", *overrides]).config
    copies, deepcopy = [], copy.deepcopy
    monkeypatch.setattr(copy, "deepcopy", lambda what, *memo: copies.append(what) or deepcopy(what, *memo))
    model = base()
    made = starting_policy(config, model, Pipeline((build_stage("grpo", {}),), "grpo"))
    assert isinstance(made and made(TorchEngine(base(), OptimOptions())), kind)
    assert any(copied is model for copied in copies) == (kind in (FrozenCopy, OffloadedCopy))
