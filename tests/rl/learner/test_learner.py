"""The learner's laws: what may not change a gradient, what must, and what is refused."""

import copy
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from rl.learner.engine import NonFiniteError
from rl.learner.forward import ResponseModel
from rl.learner.learner import BatchOptions
from rl.learner.loss import LossOptions
from rl.learner.pack import loss_rows, split_by_row, split_by_trajectory
from rl.rows.assemble import TokenAdvantage, step_table, token_rows
from tests.rl.helpers import VOCAB, double_model, make_learner, random_groups, step
from tests.rl.learner.gradients import check_slopes, one_step
from tests.toy import tiny_model

ALL_TERMS = LossOptions(kl_coef=0.1, entropy_coef=0.01, clip_high=0.3)


CLOSE = {"atol": 1e-8, "rtol": 0.0}


def updated(model, rows, advantage, *, loss=ALL_TERMS, lr=1e-2, **options):
    """Weights and metrics after one update from `model`; SGD-like exactness needs equal gradients."""
    reference = tiny_model(VOCAB, std=0.3, seed=9) if loss.kl_coef else None
    learner = make_learner(copy.deepcopy(model), loss=loss, lr=lr, reference=reference, **options)
    metrics = learner.update(rows, advantage, update=1)
    return {name: tensor.clone() for name, tensor in learner.named_weights()}, metrics


def gradient(rows, advantage, loss=ALL_TERMS, token_budget=512):
    """See `one_step`."""
    return one_step(rows, advantage, loss, token_budget=token_budget)[0]


@pytest.mark.parametrize(
    "aggregation", ["token-mean", "seq-mean-token-mean", "seq-mean-token-sum-norm", "traj-mean-token-mean"]
)
@pytest.mark.parametrize("kind", ["ppo", "gspo"])
def test_neither_packing_nor_row_order_changes_the_gradient(rows, advantage, aggregation, kind):
    loss = replace(ALL_TERMS, aggregation=aggregation, kind=kind, norm_length=6)
    whole = gradient(rows, advantage, loss, token_budget=100_000)
    assert whole.abs().max() > 1e-2
    for budget in (1, 64, 200):
        torch.testing.assert_close(gradient(rows, advantage, loss, budget), whole, **CLOSE)
    shuffled = [rows[i] for i in np.random.default_rng(2).permutation(len(rows))]
    torch.testing.assert_close(gradient(shuffled, advantage, loss, 200), whole, **CLOSE)


def test_the_gradient_is_that_of_a_plain_computation(rows, advantage):
    """Against logits of the whole row, one row at a time, without any of the packing code."""
    plain = double_model(VOCAB)
    total = torch.zeros(())
    tokens = sum(len(row.logp_sampled) for row in rows)
    for row in rows:
        logp_LV = plain(torch.from_numpy(row.ids[None]).long()).logits[0].log_softmax(-1)
        offset = 0
        for start, end, n in row.spans:
            for i in range(start, end):
                ratio = (logp_LV[i - 1, int(row.ids[i])] - float(row.logp_sampled[offset])).exp()
                total = (
                    total
                    + torch.maximum(-advantage[n] * ratio, -advantage[n] * ratio.clamp(0.8, 1.2)) / tokens
                )
                offset += 1
    total.backward()
    expected = torch.cat([p.grad.flatten() for p in plain.parameters()])
    got = gradient(rows, advantage, LossOptions(dual_clip=None))
    torch.testing.assert_close(got, expected, atol=1e-6, rtol=0.0)  # weights and advantages travel as float32


def test_the_gradient_against_finite_differences(rows, advantage):
    """Of the reported loss with respect to single weights, in float64, all terms on."""
    trained, reference = double_model(VOCAB), double_model(VOCAB, seed=9)

    def loss_at() -> float:
        learner = make_learner(trained, loss=ALL_TERMS, reference=reference, lr=0.0)
        learner.engine.step = lambda lr: 1.0
        return learner.update(rows, advantage, update=1)["train/loss"]

    check_slopes(trained, loss_at, every=4)


def test_skipping_rows_without_gradient_changes_nothing(model, rows, advantage):
    sparse = np.where(np.arange(len(advantage)) % 3 == 0, advantage, 0.0)
    sparse[[n for row in rows if row.trajectory % 3 == 0 for _, _, n in row.spans]] = 0.0
    skipping = LossOptions()
    tiny_entropy = LossOptions(entropy_coef=1e-30)  # keeps every token, adds nothing
    _, metrics = updated(model, rows, sparse, loss=skipping)
    empty = [not any(sparse[n] for _, _, n in row.spans) for row in rows]
    assert metrics["train/skipped_rows"] == sum(empty) / len(rows) > 0
    _, full = updated(model, rows, sparse, loss=tiny_entropy)
    assert full["train/skipped_rows"] == 0
    assert metrics["train/input_tokens"] < full["train/input_tokens"]
    kept = gradient(rows, sparse, tiny_entropy)
    torch.testing.assert_close(gradient(rows, sparse, skipping), kept, **CLOSE)


@pytest.mark.parametrize("which", ["zero advantages", "no rows"])
def test_an_update_without_evidence_leaves_the_weights_alone(model, rows, advantage, which):
    chosen = rows if which == "zero advantages" else []
    weights, metrics = updated(model, chosen, advantage * 0.0, loss=LossOptions())
    assert all(torch.equal(weights[name], p) for name, p in model.named_parameters())
    assert metrics["train/optimizer_steps"] == 0
    assert metrics["train/skipped_steps"] == (1 if chosen else 0)
    assert all(np.isfinite(v) for v in metrics.values())


def test_zero_advantages_still_train_on_kl_and_entropy(model, rows, advantage):
    weights, metrics = updated(model, rows, advantage * 0.0)
    assert metrics["train/optimizer_steps"] == 1 and metrics["train/policy_loss"] == 0
    assert any(not torch.equal(weights[name], p) for name, p in model.named_parameters())


def test_token_advantages_equal_step_advantages_spread_out(groups, rows, advantage):
    table = step_table(groups)
    spread = TokenAdvantage(np.repeat(advantage, table.length), table.offsets)
    per_step = gradient(rows, advantage)
    assert torch.equal(gradient(rows, spread), per_step)
    spread.values[1] += 1.0
    assert (gradient(rows, spread) - per_step).abs().max() > 1e-4


def test_minibatches_split_by_trajectory_and_are_seeded():
    rows = token_rows(random_groups(groups=3, size=4, append=False))
    parts = split_by_trajectory(rows, 5, seed=1)
    assert sorted(i for part in parts for i in part) == list(range(len(rows)))
    owners = [{rows[i].trajectory for i in part} for part in parts]
    assert all(not a & b for n, a in enumerate(owners) for b in owners[:n])
    assert max(map(len, owners)) - min(map(len, owners)) <= 1
    assert parts == split_by_trajectory(rows, 5, seed=1) != split_by_trajectory(rows, 5, seed=2)


@pytest.mark.parametrize(
    ("count", "size", "sizes"), [(7, 3, [3, 2, 2]), (6, 3, [3, 3]), (2, 5, [2]), (0, 5, [])]
)
def test_minibatches_of_rows_are_seeded_and_of_nearly_equal_size(count, size, sizes):
    parts = split_by_row(count, size, seed=1)
    assert [len(part) for part in parts] == sizes
    assert sorted(i for part in parts for i in part) == list(range(count))
    assert parts == split_by_row(count, size, seed=1)
    if count == 7:
        assert parts != split_by_row(count, size, seed=2)


def test_a_limit_of_rows_takes_as_few_optimiser_steps_as_it_allows(model, rows, advantage):
    limit = len(rows) // 2
    _, metrics = updated(model, rows, advantage, batches=BatchOptions(epochs=2, minibatch_rows=limit))
    assert metrics["train/optimizer_steps"] == 2 * math.ceil(len(rows) / limit)
    assert metrics["train/loss_tokens"] == 2 * sum(len(row.logp_sampled) for row in rows)


def test_epochs_and_minibatches_take_optimiser_steps(model, rows, advantage):
    _, metrics = updated(model, rows, advantage, batches=BatchOptions(epochs=2, minibatches=3))
    assert metrics["train/optimizer_steps"] == 6
    assert metrics["train/loss_tokens"] == 2 * sum(len(row.logp_sampled) for row in rows)
    assert metrics["train/ratio_max"] > 1.05


def test_rows_end_at_their_last_useful_token():
    rows = token_rows(random_groups(groups=1, size=1, seed=5))
    (start, end, n) = rows[0].spans[0]
    only_first = np.zeros(9)
    only_first[n] = 1.0
    (prepared,), _ = loss_rows(rows, only_first, LossOptions())
    assert prepared.ids.tolist() == rows[0].ids[: end - 1].tolist()
    assert prepared.target_T.tolist() == rows[0].ids[start:end].tolist()
    whole = sum(b - a for a, b, _ in rows[0].spans)
    assert prepared.weight_T.tolist() == pytest.approx([1 / whole] * (end - start))  # the full normaliser


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_mismatch_is_zero_for_exact_logps_and_grows_otherwise(model, rows, advantage, temperature):
    learner = make_learner(copy.deepcopy(model), temperature=temperature)
    exact = [replace(row, logp_sampled=logp) for row, logp in zip(rows, learner.logps(rows), strict=True)]
    metrics = learner.update(exact, advantage, update=1)
    assert metrics["train/mismatch_mean"] < 1e-6
    assert metrics["train/mismatch_ratio_max"] == pytest.approx(1.0, abs=1e-5)
    assert updated(model, rows, advantage)[1]["train/mismatch_ratio_max"] > 1.05


def test_chunked_logits_equal_whole_ones(rows, advantage, monkeypatch):
    whole = gradient(rows, advantage)
    monkeypatch.setattr("rl.learner.forward.MAX_LOGITS", 7 * VOCAB)
    torch.testing.assert_close(gradient(rows, advantage), whole, **CLOSE)


def test_a_nan_stops_the_update_before_the_optimiser(model, rows, advantage):
    broken = copy.deepcopy(model)
    learner = make_learner(broken)
    learner.update(rows, advantage, update=1)
    with torch.no_grad():
        broken.model.norm.weight[0] = float("nan")
    before = {name: tensor.clone() for name, tensor in learner.named_weights()}
    with pytest.raises(NonFiniteError, match="update 2, epoch 0, mini-batch 0: the loss is nan"):
        learner.update(rows, advantage, update=2)
    after = dict(learner.named_weights())
    assert all(
        torch.equal(
            before[name],
            after[name],
        )
        or name == "model.norm.weight"
        for name in before
    )
    assert learner.version == 1


def test_an_infinite_gradient_is_refused_by_the_engine(model):
    learner = make_learner(copy.deepcopy(model))
    parameter = next(learner.engine.module.parameters())
    before = parameter.detach().clone()
    learner.engine.backward((parameter * float("inf")).sum(), last=True)
    with pytest.raises(NonFiniteError, match="gradient norm"):
        learner.engine.step(1e-3)
    assert torch.equal(parameter, before)


def test_bad_inputs(model, rows, advantage):
    with pytest.raises(ValueError, match="advantage of step row 0 is not finite"):
        make_learner(copy.deepcopy(model)).update(rows, np.full_like(advantage, np.nan), update=1)
    with pytest.raises(ValueError, match="no reference model"):
        make_learner(model, loss=LossOptions(kl_coef=0.1))
    with pytest.raises(ValueError, match="temperature must be above 0"):
        make_learner(model, temperature=0.0)
    dropping = tiny_model(VOCAB)
    dropping.config.attention_dropout = 0.1
    with pytest.raises(ValueError, match="dropout"):
        ResponseModel(dropping)


def test_trajectories_weigh_the_same_when_asked():
    """Advantages of mean 0 over trajectories sum to a loss of 0 at ratio 1 only if they do."""
    rows = token_rows(random_groups(groups=2, size=4, append=False))
    owner = {n: row.trajectory for row in rows for _, _, n in row.spans}
    sides = np.array([1.0 if owner[n] % 2 else -1.0 for n in sorted(owner)])
    sums = {}
    for aggregation in ("token-mean", "traj-mean-token-mean"):
        prepared, _ = loss_rows(rows, sides, LossOptions(aggregation=aggregation))
        sums[aggregation] = sum(float((row.weight_T * row.advantage_T).sum()) for row in prepared)
        assert sum(float(row.weight_T.sum()) for row in prepared) == pytest.approx(1.0)
    assert sums["traj-mean-token-mean"] == pytest.approx(0.0, abs=1e-6)
    assert abs(sums["token-mean"]) > 0.01


def test_long_responses_do_not_outweigh_short_ones_when_asked(model):
    """seq-mean-token-mean weighs a response of 6 tokens like one of 2; token-mean three times as much."""
    groups = random_groups(1, 1)
    groups[0][0].steps = [step(0, [1, 2], [3, 4], fresh=True), step(1, [5], [6, 7, 8, 9, 10, 11])]
    rows = token_rows(groups)
    for aggregation, ratio in (("token-mean", 3.0), ("seq-mean-token-mean", 1.0)):
        (prepared,), _ = loss_rows(rows, np.ones(2), LossOptions(aggregation=aggregation))
        assert prepared.weight_T[2:].sum() / prepared.weight_T[:2].sum() == pytest.approx(ratio)
