"""Defects of the public reference code, and complaints of its users: the opposite holds here."""

import numpy as np
import pytest

from credit.pipeline import Pipeline
from credit.table import StepTable


def one_step_group(rewards, **changes):
    n = len(rewards)
    columns = {
        "group": [0] * n,
        "trajectory": list(range(n)),
        "t": [0] * n,
        "reward": rewards,
        "outcome": rewards,
        "success": [reward > 0 for reward in rewards],
        "anchor": ["start"] * n,
    }
    return StepTable(**(columns | changes))


def advantage(table, **stages):
    return Pipeline.from_config(stages).run(table).advantage


def test_long_losers_do_not_dominate_the_baseline(build):
    table = build(
        [
            {"success": True, "steps": [["a", "x", 0, 1], ["b", "x", 10, 1]]},
            {"success": False, "steps": [[str(i), "x", 0, 1] for i in range(8)]},
        ]
    )
    assert advantage(table, grpo={"norm": "mean"}).tolist() == [5.0] * 2 + [-5.0] * 8
    assert advantage(table, returns={}, gigpo={"norm": "mean"}).tolist() == [5.0] * 2 + [-5.0] * 8


@pytest.mark.parametrize("method", ["grpo", "rloo", "gigpo"])
@pytest.mark.parametrize("steps", [1, 3])
def test_a_group_with_one_trajectory_left_gets_zero(build, method, steps):
    places = [[str(i), "x", 10 * (i == steps - 1), 1] for i in range(steps)]
    assert not advantage(build([{"success": True, "steps": places}]), returns={}, **{method: {}}).any()


def test_the_anchor_is_the_envs_key_not_the_observation_text():
    table = one_step_group(
        [10.0, 0.0],
        anchor=["shelf 1 | holding nothing", "shelf 1 | holding cup 1"],
        observation=["You arrive at shelf 1. On the shelf 1, you see nothing."] * 2,
    )
    result = Pipeline.from_config({"returns": {}, "gigpo": {"norm": "mean"}}).run(table)
    assert result.columns["gigpo.anchor_size"].tolist() == [1, 1]
    assert not result.columns["gigpo.step"].any()


def test_returns_follow_the_step_number_not_the_row_order():
    table = StepTable(
        group=[0] * 3,
        trajectory=[0] * 3,
        t=[2, 0, 1],
        reward=[10, 0, 0],
        outcome=[10] * 3,
        success=[1] * 3,
        anchor=list("cab"),
    )
    result = Pipeline.from_config({"returns": {"gamma": 0.5}, "gigpo": {}}).run(table)
    assert result.returns.tolist() == [10.0, 2.5, 5.0]


def test_three_rows_padded_to_64_keep_their_statistics():
    rewards, pad = [10.0, 0.0, 2.0], 61
    small = one_step_group(rewards)
    padded = one_step_group(rewards + [99.0] * pad, padding=[False] * 3 + [True] * pad)
    for stages in ({"grpo": {}}, {"rloo": {}}, {"returns": {}, "gigpo": {}}):
        got = advantage(padded, **stages)
        assert got[:3].tolist() == advantage(small, **stages).tolist()
        assert not got[3:].any()


def test_four_rollouts_of_one_task_are_one_group():
    result = Pipeline.from_config({"grpo": {"norm": "mean"}}).run(one_step_group([1.0, 0.0, 1.0, 0.0]))
    assert result.advantage.tolist() == [0.5, -0.5, 0.5, -0.5]
    assert result.metrics["credit/grpo/group_size_mean"] == result.metrics["credit/grpo/group_size_min"] == 4


@pytest.mark.parametrize("method", ["grpo", "rloo", "gigpo"])
def test_a_single_zero_among_equals_neither_explodes_nor_vanishes(method):
    got = advantage(one_step_group([0.0] + [0.95] * 7), returns={}, **{method: {}})
    assert np.isfinite(got).all() and np.abs(got).max() < 10
    assert got[0] < 0 and (got[1:] > 0).all()


@pytest.mark.parametrize("rewards", [[0.3] * 8, [1.0, 1.0, 1.0 + 1e-9]])
@pytest.mark.parametrize("method", ["grpo", "rloo", "gigpo"])
def test_groups_that_are_equal_up_to_rounding_get_exactly_zero_and_are_counted(rewards, method):
    result = Pipeline.from_config({"returns": {}, method: {}}).run(one_step_group(rewards))
    assert not result.advantage.any()
    assert result.metrics[f"credit/{method}/zero_variance_groups"] == 1.0
    assert result.metrics["credit/advantage_zero_fraction"] == 1.0


@pytest.mark.parametrize("unit", ["trajectories", "rows", "first_row"])
@pytest.mark.parametrize(("norm", "want"), [("mean", [5.0, -5.0]), ("mean_std", [0.5**0.5, -(0.5**0.5)])])
def test_dividing_by_std_is_honoured_whatever_the_path(unit, norm, want):
    table = one_step_group([10.0, 0.0])
    paths = [
        {"grpo": {"norm": norm, "unit": unit, "eps": 0.0}},
        {"gigpo": {"norm": norm, "unit": unit, "eps": 0.0, "omega": 0.0}},
    ]
    if unit != "trajectories":
        paths.append({"grpo": {"norm": norm, "unit": unit, "eps": 0.0, "fp32_reference_compat": True}})
    for stages in paths:
        np.testing.assert_allclose(advantage(table, returns={}, **stages), want, atol=1e-6)
