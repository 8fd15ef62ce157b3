"""HGPO: levels of history, their weights, what is left out, and what it shares with GiGPO and GRPO."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from credit.parts.anchors import history_groups
from credit.pipeline import Pipeline
from credit.signals import Context, Signals
from credit.stages.hgpo import HGPO
from credit.table import StepTable
from tests.credit.walks import grouped, groups_of_walks

FAST = settings(max_examples=30, deadline=None, derandomize=True)


def attempt(path, reward):
    """A trajectory through the places of `path`, rewarded at its end."""
    last = len(path) - 1
    return {"success": reward > 0, "steps": [[p, "go", reward * (i == last), 1] for i, p in enumerate(path)]}


def run(table, gamma=1.0, **options):
    return Pipeline.from_config({"returns": {"gamma": gamma}, "hgpo": options}).run(table)


# returns 10 10 | 0 0 | 10 10
THREE = [attempt("ab", 10.0), attempt("ab", 0.0), attempt("cb", 10.0)]


@pytest.mark.parametrize(
    ("alpha", "want"),
    [
        # level 1: a 10 0 | b 10 0 10 (mean 20/3); level 2 (a b): 10 0; weights 2 and 3
        (1.0, [5, (2 * 10 / 3 + 15) / 5, -5, (2 * -20 / 3 - 15) / 5, 0, 10 / 3]),
        (0.0, [5, (10 / 3 + 5) / 2, -5, (-20 / 3 - 5) / 2, 0, 10 / 3]),
        (2.0, [5, (4 * 10 / 3 + 45) / 13, -5, (4 * -20 / 3 - 45) / 13, 0, 10 / 3]),
    ],
)
def test_levels_by_hand(build, alpha, want):
    result = run(build(THREE), history=1, alpha=alpha, norm="mean", eps=0.0)
    np.testing.assert_allclose(result.advantage, want, atol=1e-12)
    assert result.columns["hgpo.depth"].tolist() == [1, 2, 1, 2, 0, 1]
    assert result.columns["hgpo.levels"].tolist() == [1, 2, 1, 2, 0, 1]
    assert result.metrics["credit/hgpo/no_peer_fraction"] == pytest.approx(1 / 6)
    assert result.metrics["credit/hgpo/depth_mean"] == pytest.approx(7 / 5)


def test_the_standard_deviation_is_the_populations(build):
    result = run(build(THREE), history=0, eps=0.0)
    # b: 10 0 10, mean 20/3, population variance 200/9
    np.testing.assert_allclose(
        result.advantage, [1, 0.5**0.5, -1, -(2**0.5), 0, 0.5**0.5], rtol=0, atol=1e-12
    )


def test_the_outcome_joins_with_weight_one(build):
    result = run(build(THREE), history=0, norm="mean", eps=0.0, base_group=True)
    # outcome 10 0 10: 10/3, -20/3, 10/3; the step's level weighs 2
    want = [(10 / 3 + 10) / 3, 10 / 3, (-20 / 3 - 10) / 3, -20 / 3, 10 / 3, 10 / 3]
    np.testing.assert_allclose(result.advantage, want, atol=1e-12)


def test_a_level_on_which_the_row_is_average_does_not_dilute_the_others(build):
    # at b returns 10 5 0, so 5 is average there; behind a it is compared with 0 only
    table = build([attempt("cb", 10.0), attempt("ab", 5.0), attempt("ab", 0.0)])
    result = run(table, history=1, norm="mean", eps=0.0)
    assert result.advantage[3] == 2.5
    assert result.columns["hgpo.levels"][3] == 1 and result.columns["hgpo.depth"][3] == 2


@pytest.mark.parametrize("names", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
def test_a_rounding_error_does_not_decide_what_is_average(names):
    """0.1, 0.2 and 0.3: the mean is 0.2 only up to rounding, which depends on the order of the sum."""
    table = StepTable(
        group=[0] * 3,
        trajectory=names,
        t=[0] * 3,
        reward=[0.1, 0.2, 0.3],
        outcome=[0.1, 0.2, 0.3],
        success=[0] * 3,
        anchor=["a"] * 3,
    )
    result = run(table, base_group=True)
    assert result.advantage[1] == 0.0 and result.columns["hgpo.levels"][1] == 0


def test_the_history_does_not_reach_into_another_trajectory_or_group():
    table = StepTable(
        group=[0, 0, 0, 0, 1, 1],
        trajectory=[0, 0, 1, 1, 2, 2],
        t=[0, 1] * 3,
        reward=[0.0] * 6,
        outcome=[0.0] * 6,
        success=[0] * 6,
        anchor=list("ababab"),
    )
    levels = [(rows.tolist(), peers.tolist()) for rows, peers in history_groups(table, 3)]
    assert levels[0] == ([0, 1, 2, 3, 4, 5], [0, 1, 0, 1, 2, 3])
    assert levels[1] == ([1, 3, 5], [0, 0, 1])
    assert levels[2] == ([], [])


def test_a_row_alone_takes_the_credit_an_earlier_stage_left_for_it(build):
    table = build([attempt("ab", 10.0), attempt("ac", 0.0)]).canonical()[0]
    signals = Signals(np.array([10.0, 10, 0, 0]), table.outcome, np.array([0.3, 0.3, 0.3, 0.3]))
    got = HGPO(norm="mean", eps=0.0).estimate(table, signals, Context()).advantage
    np.testing.assert_allclose(got, [5.0, 0.3, -5.0, 0.3])


@FAST
@given(groups=groups_of_walks)
def test_without_history_it_is_gigpos_step_term(groups):
    table = grouped(groups)
    gigpo = Pipeline.from_config({"returns": {}, "gigpo": {"norm": "mean"}}).run(table)
    hgpo = run(table, gamma=0.95, history=0, norm="mean", eps=0.0)
    np.testing.assert_allclose(hgpo.advantage, gigpo.columns["gigpo.step"], atol=1e-12)


@FAST
@given(
    groups=groups_of_walks,
    norm=st.sampled_from(["mean", "mean_std"]),
    unit=st.sampled_from(["trajectories", "rows"]),
)
def test_without_shared_anchors_the_base_group_is_grpo(groups, norm, unit):
    table = grouped(groups, anchors=lambda n: [str(i) for i in range(n)])
    options = {"norm": norm, "unit": unit, "eps": 0.0}
    grpo = Pipeline.from_config({"returns": {}, "grpo": options}).run(table).advantage
    np.testing.assert_allclose(run(table, base_group=True, **options).advantage, grpo, atol=1e-9)


@FAST
@given(groups=groups_of_walks, history=st.integers(3, 9))
def test_history_longer_than_the_trajectories_changes_nothing(groups, history):
    table = grouped(groups)  # at most 4 steps
    assert run(table, history=history).advantage.tolist() == run(table, history=3).advantage.tolist()


def test_float32_needs_a_unit_of_the_reference_only_for_the_outcome():
    HGPO(fp32_reference_compat=True)
    with pytest.raises(ValueError, match="no unit 'trajectories'; set unit to rows"):
        HGPO(fp32_reference_compat=True, base_group=True)


@pytest.mark.reference
def test_golden_ties_are_exactly_zero_and_noise_in_float32(golden):
    cases = json.loads((golden / "hgpo.json").read_text())["cases"]
    cases = [case for case in cases if case["kind"] == "fp_tie"]
    assert cases
    for case in cases:
        returns = np.array(case["step_rewards_in"])
        names = {name: i for i, name in enumerate(dict.fromkeys(case["rows"]["traj_id"]))}
        table = StepTable(
            group=[0] * len(returns),
            trajectory=[names[name] for name in case["rows"]["traj_id"]],
            t=case["rows"]["step_idx"],
            reward=case["rows"]["step_reward"],
            outcome=case["rows"]["episode_reward"],
            success=case["rows"]["success"],
            anchor=case["rows"]["anchor_obs"],
            return_to_go=returns,
        )
        options = {"history": case["config"]["history_length"], "unit": "rows"}
        got = Pipeline.from_config({"hgpo": options}).run(table).advantage
        noisy = Pipeline.from_config({"hgpo": options | {"fp32_reference_compat": True}}).run(table).advantage
        assert not got[np.array(case["row_advantage_f64"]) == 0].any()
        assert np.abs(noisy - got).max() > 1e-3
