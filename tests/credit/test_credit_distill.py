"""Auxiliary losses: the weight of every token in a distillation term beside the policy loss."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from credit.table import StepTable
from tests.credit.teacher_tables import NAN, random_columns, reordered, run, table_with_gaps

FAST = settings(max_examples=12, deadline=None, derandomize=True)
seeds = st.integers(0, 10_000)
LN = np.log

every_loss = pytest.mark.parametrize(
    ("stage", "options"), [("sdar", {}), ("opsd", {}), ("opsd", {"weight": "gap"})], ids=str
)


def test_sdar_by_hand():
    """Gates sigmoid(ln 3) = 3/4, sigmoid(-ln 3) = 1/4, sigmoid(0) = 1/2, none."""
    table = table_with_gaps([(True, [[LN(3), -LN(3)]]), (False, [[0.0], [NAN]])])
    result = run({"grpo": {}, "sdar": {"coef": 0.1, "slope": 1.0}}, table)
    np.testing.assert_allclose(result.aux_weight, [0.075, 0.025, 0.05, 0.0], atol=1e-15)
    np.testing.assert_allclose(result.columns["sdar.gate"], [0.5, 0.5, 0.0])
    assert result.metrics["credit/sdar/gate_mean"] == pytest.approx(0.5)
    assert result.metrics["credit/sdar/gate_open"] == pytest.approx(1 / 3)
    published = run({"grpo": {}, "sdar": {}}, table).aux_weight
    np.testing.assert_allclose(published[:2], [0.01 / (1 + 3**-5.0), 0.01 / (1 + 3**5.0)])


def test_opsd_by_hand():
    table = table_with_gaps([(True, [[2.0, -1.0]]), (False, [[0.0], [NAN]])])
    assert run({"grpo": {}, "opsd": {}}, table).aux_weight.tolist() == [0.01, 0.01, 0.01, 0.0]
    by_gap = run({"grpo": {}, "opsd": {"coef": 0.5, "weight": "gap"}}, table).aux_weight
    assert by_gap.tolist() == [1.0, -0.5, 0.0, 0.0]


def test_the_gap_is_the_gradient_of_the_kl_and_a_constant_is_not():
    """Two tokens, logits (x, 0): expected gradients over what the policy samples, summed exactly."""
    policy, teacher = np.array([0.8, 0.2]), np.array([0.3, 0.7])
    tokens = {"logp_sampled": LN(policy), "logp_peer": LN(teacher), "logp_hindsight": LN(teacher)}
    table = table_with_gaps([(True, [[0.0, 0.0]])], tokens=tokens)
    score = np.array([policy[1], -policy[0]])  # d log p(token) / dx

    def expected(options):
        weight = run({"grpo": {}, "opsd": {"coef": 1.0} | options}, table).aux_weight
        return float((policy * weight * -score).sum())

    def kl(x):
        p = np.array([1 / (1 + np.exp(-x)), 1 / (1 + np.exp(x))])
        return float((p * (LN(p) - LN(teacher))).sum())

    x = LN(4.0)
    assert expected({"weight": "gap"}) == pytest.approx((kl(x + 1e-5) - kl(x - 1e-5)) / 2e-5, rel=1e-6)
    assert expected({}) == pytest.approx(0.0, abs=1e-12)


@FAST
@given(seed=seeds)
def test_a_flat_gate_is_half_of_no_gate(seed):
    table = StepTable(**random_columns(seed))
    flat = run({"grpo": {}, "sdar": {"slope": 0.0, "coef": 0.04}}, table).aux_weight
    assert flat.tolist() == run({"grpo": {}, "opsd": {"coef": 0.02}}, table).aux_weight.tolist()


@every_loss
@FAST
@given(seed=seeds)
def test_the_advantage_is_left_alone(stage, options, seed):
    table = StepTable(**random_columns(seed))
    result = run({"grpo": {}, stage: options}, table)
    assert result.advantage.tolist() == run({"grpo": {}}, table).advantage.tolist()
    assert result.token_advantage is None


@every_loss
@FAST
@given(seed=seeds)
def test_no_teacher_and_no_coefficient_mean_no_weight(stage, options, seed):
    table = StepTable(**random_columns(seed, unknown=1.0))
    assert not run({"grpo": {}, stage: options}, table).aux_weight.any()
    table = StepTable(**random_columns(seed))
    result = run({"grpo": {}, stage: options}, table)
    assert not result.aux_weight[np.isnan(table.tokens["logp_peer"])].any()
    assert not run({"grpo": {}, stage: options | {"coef": 0.0}}, table).aux_weight.any()


@FAST
@given(seed=seeds, slope=st.floats(0.0, 50.0), scale=st.sampled_from([1.0, 1e4]))
def test_gates_lie_between_0_and_1(seed, slope, scale):
    table = StepTable(**random_columns(seed, scale=scale))
    weight = run({"grpo": {}, "sdar": {"slope": slope, "coef": 1.0}}, table).aux_weight
    assert ((weight >= 0) & (weight <= 1)).all()


@FAST
@given(seed=seeds)
def test_losses_add_up(seed):
    table = StepTable(**random_columns(seed))
    both = run({"grpo": {}, "sdar": {}, "opsd": {}}, table).aux_weight
    parts = (run({"grpo": {}, name: {}}, table).aux_weight for name in ("sdar", "opsd"))
    np.testing.assert_allclose(both, sum(parts), atol=1e-15)


@every_loss
@FAST
@given(seed=seeds, shuffle=st.randoms(use_true_random=False))
def test_row_order_and_padding_change_nothing(stage, options, seed, shuffle):
    columns = random_columns(seed)
    table = StepTable(**columns)
    straight = run({"grpo": {}, stage: options}, table)
    order = list(range(len(table)))
    shuffle.shuffle(order)
    mixed = run({"grpo": {}, stage: options}, StepTable(**reordered(columns, order)))
    assert mixed.aux_weight.tolist() == straight.aux_weight[table.token_index(np.array(order))].tolist()
    lonely = columns | {"padding": [k != columns["trajectory"][0] for k in columns["trajectory"]]}
    weight = run({"grpo": {}, stage: options}, StepTable(**lonely)).aux_weight
    kept = np.repeat(~np.array(lonely["padding"]), table.length)
    assert weight[kept].tolist() == straight.aux_weight[kept].tolist() and not weight[~kept].any()


@every_loss
@pytest.mark.parametrize("path", [[[1.0]], [[]], [[NAN, NAN]], [[1e4], [-1e4]]])
def test_finite_on_the_smallest_tables(stage, options, path):
    for trajectories in ([], [(True, path)], [(False, path)] * 3):
        result = run({"grpo": {}, stage: options}, table_with_gaps(trajectories))
        assert np.isfinite(result.aux_weight).all()
        assert all(np.isfinite(value) for value in result.metrics.values())
