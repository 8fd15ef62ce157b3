"""ProGPO's coverage: by hand, and where it is silent."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from credit.pipeline import Pipeline
from credit.signals import Context, PerToken, Signals
from credit.stages.progpo_coverage import ProGPOCoverage, first_visits
from credit.table import StepTable
from tests.credit.paths import groups, path, table_of

FAST = settings(max_examples=15, deadline=None, derandomize=True)


def coverage(base="grpo", **options):
    return Pipeline.from_config({"returns": {}, base: {}, "progpo_coverage": {"eps": 0.0} | options})


def failing_and_mixed():
    """Group 0 fails: a → b → a → c saw 2 new places in 3 steps, a → a → a none. Group 1 has a success."""
    return table_of(
        [
            [(False, path("a:go b:go a:go")), (False, path("a:look a:look"))],
            [(True, path("a:go")), (False, path("a:go b:go"))],
        ],
        ends={0: "c", 1: "a"},
    )


def test_first_visits():
    assert first_visits(failing_and_mixed()).tolist() == [True, False, True, False, False, True, True, True]


def test_coverage_by_hand():
    table = failing_and_mixed()
    grpo = Pipeline.from_config({"returns": {}, "grpo": {}}).run(table).advantage
    result = coverage().run(table)
    # P = 2/3 and 0: one standard deviation above and below; half the groups fail
    np.testing.assert_allclose(result.advantage[:5], 0.3 * 0.5 * np.array([1, 1, 1, -1, -1]), atol=1e-12)
    assert result.advantage[5:].tolist() == grpo[5:].tolist()
    np.testing.assert_allclose(result.columns["progpo_coverage.coverage"][[0, 3]], [2 / 3, 0])
    assert result.metrics["credit/progpo_coverage/fail_fraction"] == 0.5
    assert result.metrics["credit/progpo_coverage/lam"] == pytest.approx(0.15)


def test_coverage_of_steps_by_hand():
    result = coverage(level="step", weight=1.0, scale_by_fail_fraction=False).run(failing_and_mixed())
    # indicators 1 0 1 | 0 0, each trajectory one vote: mean 1/3, variance 2/9
    want = (np.array([1, 0, 1, 0, 0]) - 1 / 3) / np.sqrt(2 / 9)
    np.testing.assert_allclose(result.advantage[:5], want, atol=1e-12)


@FAST
@given(groups=groups, level=st.sampled_from(["traj", "step"]))
def test_one_success_silences_coverage(groups, level):
    won = [[(True, group[0][1]), *group[1:]] for group in groups]
    table = table_of(won)
    want = Pipeline.from_config({"returns": {}, "gigpo": {}}).run(table).advantage
    assert coverage("gigpo", level=level).run(table).advantage.tolist() == want.tolist()


@FAST
@given(groups=groups)
def test_without_weight_added_coverage_changes_nothing(groups):
    table = table_of([[(False, steps) for _, steps in group] for group in groups])
    want = Pipeline.from_config({"returns": {}, "gigpo": {}}).run(table).advantage
    assert coverage("gigpo", weight=0.0, combine="add").run(table).advantage.tolist() == want.tolist()


def test_equal_coverage_leaves_the_advantage():
    table = table_of([[(False, path("a:go b:go")), (False, path("a:go c:go"))]], valid=[1, 0, 1, 1])
    want = Pipeline.from_config({"returns": {}, "grpo": {}}).run(table).advantage
    assert want.any() and coverage().run(table).advantage.tolist() == want.tolist()


def test_penalties_do_not_make_a_failure_a_success_and_give_way_to_coverage():
    table = table_of(
        [[(False, path("a:go b:go")), (False, path("a:go a:go"))]], ends={0: "c", 1: "a"}, valid=[0, 1, 1, 1]
    )
    penalised = Pipeline.from_config({"returns": {}, "grpo": {}}).run(table).advantage
    assert penalised.any()
    np.testing.assert_allclose(coverage().run(table).advantage, [0.3, 0.3, -0.3, -0.3])
    np.testing.assert_allclose(
        coverage(combine="add").run(table).advantage, penalised + [0.3, 0.3, -0.3, -0.3]
    )


def test_partial_scores_count_as_failures_only_when_asked():
    table = failing_and_mixed()
    columns = {name: getattr(table, name) for name in ("group", "trajectory", "t", "reward", "success")}
    columns |= {name: getattr(table, name) for name in ("anchor", "next_anchor", "action")}
    scored = StepTable(**columns, outcome=np.where(table.group == 0, 4.0, table.outcome))
    fails = {
        test: coverage(zero_test=test).run(scored).metrics["credit/progpo_coverage/fail_fraction"]
        for test in ("outcome", "success")
    }
    assert fails == {"outcome": 0.0, "success": 0.5}


def test_coverage_of_token_advantages():
    table = table_of(
        [[(False, path("a:go b:go")), (False, path("a:go"))]], ends={0: "c", 1: "a"}, length=[2, 1, 3]
    )
    stage = ProGPOCoverage(weight=1.0, eps=0.0, combine="add")
    tokens = np.arange(6.0)
    zero = np.zeros(3)
    got = stage.reweight(table, Signals(zero, zero, zero, PerToken(tokens)), Context()).advantage
    np.testing.assert_allclose(got.values, tokens + [1, 1, 1, -1, -1, -1])
