"""What an update is said to have changed: weights by count, the policy by KL, gradients by their clip."""

import copy
import math

import numpy as np
import pytest
import torch

from rl.learner import changed_weights as changes
from rl.learner.changed_weights import Handed
from rl.learner.engine import OptimOptions
from rl.learner.kl import kl_estimate, kl_is_held
from rl.learner.learner import BatchOptions
from rl.learner.lora import LoraOptions, add_adapters
from rl.learner.loss import LossOptions
from rl.learner.policy_moved import SHARE, kl_moved, watched_rows
from rl.rows.assemble import step_table, token_rows
from rl.sync import sync
from tests.rl.helpers import VOCAB, make_learner, random_groups, score_with
from tests.toy import ScriptedPolicy, tiny_model, toy_tokenizer

BATCHES = BatchOptions(token_budget=400)


@pytest.fixture(scope="module")
def batch():
    groups = random_groups(groups=3, size=4)
    advantage = np.random.default_rng(1).normal(size=len(step_table(groups)))
    return score_with(tiny_model(VOCAB, std=0.3), groups), advantage


class Taking(ScriptedPolicy):
    """A policy that keeps what it was handed last."""

    def load_weights(self, weights, version):
        self.weights, self.version = {name: weight.clone() for name, weight in weights}, version


def policy():
    return Taking(toy_tokenizer(), lambda text, rng: "")


def passed(handed, weights):
    assert list(handed.passing(weights.items())) == list(weights.items())
    return handed.share()


def test_every_changed_element_counts_and_only_those_of_trained_weights():
    handed = Handed({"a", "b"})
    weights = {"a": torch.zeros(3, 4), "b": torch.ones(8), "frozen": torch.zeros(100)}
    assert passed(handed, weights) is None  # nothing to compare with
    assert passed(handed, weights) == 0.0
    weights = {name: weight.clone() for name, weight in weights.items()}
    weights["a"][1, 2], weights["b"][:4], weights["frozen"][:] = 1e-30, 2.0, 5.0
    assert passed(handed, weights) == pytest.approx(5 / 20)
    assert passed(handed, weights) == 0.0  # it is compared with the last, not with the first


def test_a_change_below_the_resolution_of_what_is_handed_over_is_none():
    handed, weight = Handed({"a"}), torch.ones(10)
    assert passed(handed, {"a": weight.bfloat16()}) is None
    assert passed(handed, {"a": (weight + 1e-4).bfloat16()}) == 0.0
    assert passed(handed, {"a": (weight + 1e-2).bfloat16()}) == 1.0


def test_of_large_weights_evenly_spaced_elements_stand_for_all(monkeypatch):
    """Changed columns are a quarter of what is compared, also where the distance could be a row."""
    monkeypatch.setattr(changes, "SAMPLE", 64)
    handed = Handed({"a", "b"})
    weights = {"a": torch.zeros(64, 64), "b": torch.zeros(64)}  # every 64th element would be one column
    passed(handed, weights)
    weights = {name: weight.clone() for name, weight in weights.items()}
    weights["a"][:, :16] = 1.0
    assert passed(handed, weights) == pytest.approx(0.25 * 64 / 65, abs=0.01)
    assert all(len(kept) <= 64 for kept in handed._before.values())


@pytest.mark.parametrize("stage", [None, 1, 3])
@pytest.mark.parametrize("adapters", [False, True])
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_what_sync_reports_is_what_the_policy_sees(batch, stage, adapters):
    """Against a count over all that the policy was handed before and after, adapters merged."""
    model = tiny_model(VOCAB, std=0.3).bfloat16()
    if adapters:
        add_adapters(model, LoraOptions(2, alpha=4.0))
    learner = make_learner(tiny_model(VOCAB), batches=BATCHES, lr=1e-4)
    if stage is None:
        learner = make_learner(model, batches=BATCHES, lr=1e-4)
    else:
        pytest.importorskip("deepspeed")
        from rl.learner.deepspeed_engine import DeepSpeedEngine
        from rl.learner.lora import trained_names

        names = trained_names(model)
        learner.engine = DeepSpeedEngine(model, OptimOptions(), zero_stage=stage)
        learner.handed = Handed(names)
    taking = policy()
    assert "train/weights_changed" not in sync(learner, taking)
    before = taking.weights
    learner.update(*batch, update=1)
    reported = sync(learner, taking)["train/weights_changed"]
    looked = [name for name in before if "_proj.weight" in name or not adapters]
    count = sum(int((before[name] != taking.weights[name]).sum()) for name in looked)
    assert reported == pytest.approx(count / sum(before[name].numel() for name in looked))
    assert 0.0 < reported < 0.9
    assert all(torch.equal(before[name], taking.weights[name]) for name in before if name not in looked)


@pytest.mark.parametrize("kind", ["k1", "abs", "k2", "k3"])
def test_the_kl_gradient_is_zero_exactly_where_it_is_said_to_be_held(kind):
    now = torch.linspace(-30.0, 30.0, 241, dtype=torch.float64, requires_grad=True)
    reference = torch.zeros_like(now)
    (gradient,) = torch.autograd.grad(kl_estimate(now, reference, kind).sum(), now)
    held = kl_is_held(now, reference, kind)
    flat = gradient == 0
    flat[120] = held[120]  # at now = reference the gradient is 0 without any clip
    assert torch.equal(held, flat)
    assert held.any() == (kind == "k3")


def test_the_share_of_held_tokens_and_no_kl_metric_without_a_reference(batch):
    rows, advantage = batch
    learner = make_learner(tiny_model(VOCAB, std=0.3), batches=BATCHES)
    assert not {"train/kl_ref", "train/kl_held"} & set(learner.update(rows, advantage, update=1))
    reference, loss = tiny_model(VOCAB, std=0.9, seed=9), LossOptions(kl_coef=0.1)
    learner = make_learner(tiny_model(VOCAB, std=0.9), loss=loss, batches=BATCHES, reference=reference)
    now = np.concatenate(learner.logps(rows))
    d = np.concatenate([np.asarray(x) for x in learner._reference_logps(rows)]) - now
    metrics = learner.update(rows, advantage, update=1)
    expected = np.mean(np.exp(d.clip(-20, 20)) - d.clip(-20, 20) - 1 >= 10)
    assert metrics["train/kl_held"] == pytest.approx(expected) and 0 < expected < 1
    assert metrics["train/kl_ref"] > 0


def test_what_clipping_leaves_of_the_gradient(batch):
    free = make_learner(tiny_model(VOCAB, std=0.3), batches=BATCHES, optim=OptimOptions(grad_clip=1e6))
    metrics = free.update(*batch, update=1)
    assert metrics["train/grad_scale"] == 1.0
    tight = make_learner(tiny_model(VOCAB, std=0.3), batches=BATCHES, optim=OptimOptions(grad_clip=1e-3))
    scale = tight.update(*batch, update=1)["train/grad_scale"]
    assert scale == pytest.approx(1e-3 / metrics["train/grad_norm"])


def test_rows_to_watch_are_few_spread_and_never_none():
    rows = token_rows(random_groups(groups=40, size=5, append=False))
    watched = watched_rows(rows, 10**9)
    sizes = [sum(len(row.ids) for row in some) for some in (watched, rows)]
    assert sizes[0] == pytest.approx(sizes[1] / SHARE, rel=0.3)
    numbers = [next(i for i, row in enumerate(rows) if row is one) for one in watched]
    assert np.ptp(np.diff(numbers)) <= 1 and numbers[-1] >= len(rows) * (1 - 1 / len(numbers)) - 1
    assert len(watched_rows(rows, 50)) < len(watched)
    assert watched_rows(rows[:3], 10**9) == rows[:1] and watched_rows([], 100) == []


def test_the_kl_of_the_estimate_by_hand():
    before = [np.array([-1.0, -2.0], dtype=np.float32), np.array([-0.5], dtype=np.float32)]
    after = [np.array([-1.0, -1.5], dtype=np.float32), np.array([-1.5], dtype=np.float32)]
    assert kl_moved(before, after) == pytest.approx((0.0 + math.exp(0.5) - 1.5 + math.exp(-1.0)) / 3)


def test_one_optimiser_step_moves_the_kl_that_is_reported_and_not_the_one_to_the_sampler(batch):
    """`train/kl_sampled` is blind to it: the only pass there is has the weights that sampled."""
    rows, advantage = batch
    learner = make_learner(tiny_model(VOCAB, std=0.3), batches=BATCHES, lr=1e-2)
    exact = [r for r in _sampled_by(learner, rows)]
    before, started = learner.logps(exact), copy.deepcopy(learner.engine.model.state_dict())
    watched = watched_rows(exact, 400)
    metrics = learner.update(exact, advantage, update=1)
    assert abs(metrics["train/kl_sampled"]) < 1e-6
    index = [next(i for i, row in enumerate(exact) if row is one) for one in watched]
    after = learner.logps(exact)
    expected = kl_moved([before[i] for i in index], [after[i] for i in index])
    assert metrics["train/kl_moved"] == pytest.approx(expected, rel=1e-3) and expected > 1e-4
    still = make_learner(tiny_model(VOCAB, std=0.3), batches=BATCHES)
    assert still.update(exact, advantage * 0, update=1)["train/kl_moved"] == 0.0
    assert all(torch.equal(p, started[name]) for name, p in still.engine.model.state_dict().items())


def _sampled_by(learner, rows):
    from dataclasses import replace

    return [replace(row, logp_sampled=logp) for row, logp in zip(rows, learner.logps(rows), strict=True)]


def test_measuring_changes_neither_weights_nor_the_random_state(batch, monkeypatch):
    results = []
    for watch in (True, False):
        if not watch:
            monkeypatch.setattr("rl.learner.learner.watched_rows", lambda rows, most: [])
        torch.manual_seed(3)
        learner = make_learner(tiny_model(VOCAB, std=0.3), batches=BatchOptions(2, 3, token_budget=400))
        metrics = learner.update(*batch, update=1)
        assert ("train/kl_moved" in metrics) is watch
        results.append((dict(learner.named_weights()), torch.random.get_rng_state()))
    (ours, state), (theirs, other) = results
    assert torch.equal(state, other) and all(torch.equal(ours[name], theirs[name]) for name in ours)
