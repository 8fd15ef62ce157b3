"""The auxiliary loss in the learner: its gradient, what it may not depend on, what it must not skip."""

import copy

import numpy as np
import pytest
import torch

from credit.pipeline import Pipeline
from rl.learner.loss import LossOptions
from rl.rows.assemble import TokenWeight, aux_of, step_table, token_rows
from rl.tracking.metrics import METRICS
from tests.rl.helpers import VOCAB, double_model, make_learner, random_groups, step
from tests.rl.learner.gradients import check_slopes, one_step

PLAIN = LossOptions(dual_clip=None)


@pytest.fixture(scope="module")
def table(groups):
    return step_table(groups)


@pytest.fixture(scope="module")
def aux(table):
    weight = np.random.default_rng(2).uniform(-0.5, 1.0, int(table.length.sum()))
    return TokenWeight(weight, table.offsets)


def gradient(rows, advantage, aux, loss=PLAIN, token_budget=512):
    """See `one_step`."""
    return one_step(rows, advantage, loss, aux=aux, token_budget=token_budget)


def plain_auxiliary(rows, aux, weigh):
    """Σ agg_i w_i (−logp_now_i) from logits of whole rows, one at a time, without any packing code."""
    plain, total = double_model(VOCAB), torch.zeros(())
    for row in rows:
        logp_LV = plain(torch.from_numpy(row.ids[None]).long()).logits[0].log_softmax(-1)
        for start, end, n in row.spans:
            for i in range(start, end):
                w = aux.values[aux.offsets[n] + i - start]
                total = total - weigh(end - start) * w * logp_LV[i - 1, int(row.ids[i])]
    total.backward()
    return torch.cat([p.grad.flatten() for p in plain.parameters()]), total.item()


@pytest.mark.parametrize("aggregation", ["token-mean", "seq-mean-token-mean"])
@pytest.mark.parametrize("kind", ["ppo", "gspo"])
def test_it_adds_a_plain_computations_gradient(rows, advantage, aux, aggregation, kind):
    """To the policy's gradient, and alone where every advantage is 0."""
    tokens = sum(len(row.logp_sampled) for row in rows)
    spans = sum(len(row.spans) for row in rows)
    mean = aggregation == "token-mean"
    expected, total = plain_auxiliary(rows, aux, lambda n: 1 / tokens if mean else 1 / (spans * n))
    loss = LossOptions(dual_clip=None, aggregation=aggregation, kind=kind)
    both, metrics = gradient(rows, advantage, aux, loss)
    policy, without = gradient(rows, advantage, None, loss)
    close = {"atol": 1e-6, "rtol": 0.0}  # weights travel as float32
    torch.testing.assert_close(both - policy, expected, **close)
    alone, _ = gradient(rows, advantage * 0.0, aux, loss)
    torch.testing.assert_close(alone, expected, **close)
    assert expected.abs().max() > 1e-2
    assert metrics["train/aux_loss"] == pytest.approx(total, abs=1e-6)
    assert metrics["train/loss"] == pytest.approx(metrics["train/policy_loss"] + total, abs=1e-6)
    assert without["train/aux_loss"] == 0 and "train/aux_loss" in METRICS


def test_against_finite_differences(rows, advantage, aux):
    trained = double_model(VOCAB)

    def loss_at():
        learner = make_learner(trained, loss=PLAIN, lr=0.0)
        learner.engine.step = lambda lr: 1.0
        return learner.update(rows, advantage, update=1, aux=aux)["train/loss"]

    check_slopes(trained, loss_at, every=5)


@pytest.mark.parametrize("kind", ["ppo", "gspo"])
def test_neither_packing_nor_row_order_changes_the_gradient(rows, advantage, aux, kind):
    loss = LossOptions(kind=kind, kl_coef=0.1, entropy_coef=0.01)
    whole, _ = gradient(rows, advantage, aux, loss, token_budget=100_000)
    close = {"atol": 1e-8, "rtol": 0.0}
    for budget in (1, 64, 200):
        torch.testing.assert_close(gradient(rows, advantage, aux, loss, budget)[0], whole, **close)
    shuffled = [rows[i] for i in np.random.default_rng(3).permutation(len(rows))]
    torch.testing.assert_close(gradient(shuffled, advantage, aux, loss, 200)[0], whole, **close)


def test_only_rows_without_advantage_and_weight_are_skipped(rows, table, advantage, aux):
    silent, distilled = (rows[0].trajectory, rows[1].trajectory)
    quiet = np.where(np.isin(table.trajectory, [silent, distilled]), 0.0, advantage)
    of_token = np.repeat(table.trajectory, table.length)
    weight = TokenWeight(np.where(of_token == distilled, aux.values, 0.0), table.offsets)
    kept, metrics = gradient(rows, quiet, weight)
    assert metrics["train/skipped_rows"] == sum(row.trajectory == silent for row in rows) / len(rows) > 0
    everything, _ = gradient(rows, quiet, weight, LossOptions(dual_clip=None, entropy_coef=1e-30))
    torch.testing.assert_close(kept, everything, atol=1e-8, rtol=0.0)


def test_weights_of_zero_are_no_evidence(model, rows, advantage, aux):
    nothing = TokenWeight(aux.values * 0.0, aux.offsets)
    trained = copy.deepcopy(model)
    metrics = make_learner(trained).update(rows, advantage * 0.0, update=1, aux=nothing)
    assert metrics["train/optimizer_steps"] == 0 and metrics["train/skipped_steps"] == 1
    assert all(torch.equal(p, q) for p, q in zip(trained.parameters(), model.parameters(), strict=True))
    with_none, _ = gradient(rows, advantage, None)
    assert torch.equal(gradient(rows, advantage, nothing)[0], with_none)


def test_training_on_it_alone_makes_the_weighted_tokens_likelier(model, rows, table, advantage):
    """Weight on the first trajectory's tokens only."""
    chosen = table.trajectory == rows[0].trajectory
    weight = TokenWeight(np.repeat(chosen.astype(float), table.length), table.offsets)
    learner = make_learner(copy.deepcopy(model))
    before = learner.logps(rows[:1])[0].mean()
    for update in range(1, 6):
        learner.update(rows, advantage * 0.0, update=update, aux=weight)
    assert learner.logps(rows[:1])[0].mean() > before + 0.01


def test_masked_responses_are_not_distilled():
    cut = step(0, [1, 2], [3, 4], fresh=True, finish="length")
    groups = random_groups(1, 1)
    groups[0][0].steps = [cut, step(1, [5], [6, 7, 8])]
    rows, table = token_rows(groups), step_table(groups)
    aux = TokenWeight(np.array([1e6, 1e6, 0.0, 0.0, 2.0]), table.offsets)
    _, metrics = gradient(rows, np.zeros(2), aux)
    assert metrics["train/loss_tokens"] == 3
    assert 0 < metrics["train/aux_loss"] < 100


def test_the_weights_come_from_the_credit_method(groups, table):
    assert aux_of(table, Pipeline.from_config({"grpo": {}}).run(table)) is None
    sampled = np.concatenate([s.logp_sampled for group in groups for tr in group for s in tr.steps])
    tokens = {"logp_sampled": sampled, "logp_peer": sampled}
    columns = {name: getattr(table, name) for name in table.__dataclass_fields__}
    taught = type(table)(**columns | {"tokens": tokens})
    weight = aux_of(taught, Pipeline.from_config({"grpo": {}, "opsd": {"coef": 0.25}}).run(taught))
    assert weight.of(1, int(table.length[1])).tolist() == [0.25] * int(table.length[1])


def test_errors(rows, advantage, aux):
    learner = make_learner(double_model(VOCAB))
    broken = TokenWeight(np.full_like(aux.values, np.nan), aux.offsets)
    with pytest.raises(ValueError, match="auxiliary weight of step row 0 is not finite"):
        learner.update(rows, advantage, update=1, aux=broken)
    with pytest.raises(ValueError, match="step row 0 has 9 tokens but .* auxiliary token weights"):
        aux.of(0, 9)
