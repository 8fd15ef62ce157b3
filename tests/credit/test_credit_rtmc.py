"""RTMC: values on the tree, by hand and against the definition."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from credit.pipeline import Pipeline
from tests.credit.paths import groups, path, table_of

FAST = settings(max_examples=15, deadline=None, derandomize=True)


def rtmc(gamma=1.0, **options):
    plain = {"norm": "none"}
    return Pipeline.from_config({"returns": {"gamma": gamma}, "rtmc": plain | options})


def by_hand():
    return table_of([[(True, path("x:go y:take")), (False, path("x:go y:look")), (False, path("x:look"))]])


def test_by_hand():
    result = rtmc().run(by_hand())
    # x: Q(go) = 5, Q(look) = 0, V = V_0 = 10/3; y: Q = 10 and 0, V = 5, V' = (2·5 + 10/3) / 3 = 40/9
    want = [5 / 3, 50 / 9, 5 / 3, -40 / 9, -10 / 3]
    np.testing.assert_allclose(result.advantage, want, atol=1e-12)
    np.testing.assert_allclose(result.columns["rtmc.q"], [5, 10, 5, 0, 0])
    np.testing.assert_allclose(result.columns["rtmc.value"], [10 / 3, 40 / 9, 10 / 3, 40 / 9, 10 / 3])
    assert result.columns["rtmc.state_returns"].tolist() == [3, 2, 3, 2, 3]


def test_an_action_counts_from_its_first_time_in_a_trajectory():
    table = table_of([[(True, path("x:go x:go")), (False, path("x:look"))]])
    result = rtmc(gamma=0.5, n_prior=0.0).run(table)
    # the winner's return at x is 5, not 10: V = 2.5
    assert result.advantage.tolist() == [2.5, 2.5, -2.5]


def test_a_prior_of_many_trajectories_is_a_group_baseline():
    result = rtmc(n_prior=1e12).run(by_hand())
    np.testing.assert_allclose(result.advantage, np.array([5, 10, 5, 0, 0]) - 10 / 3, atol=1e-6)


def test_a_prior_of_outcomes_is_undiscounted():
    table = table_of([[(True, path("x:go y:take")), (True, path("x:look"))]])
    from_outcomes = rtmc(gamma=0.5, prior="outcome").run(table).columns["rtmc.value"]
    from_returns = rtmc(gamma=0.5).run(table).columns["rtmc.value"]
    # x: returns 5 and 10; y: 10
    np.testing.assert_allclose(from_outcomes, [(15 + 10) / 3, 10, (15 + 10) / 3])
    np.testing.assert_allclose(from_returns, [7.5, (10 + 7.5) / 2, 7.5])


def test_division_keeps_signs():
    raw = rtmc().run(by_hand()).advantage
    for norm, size in (("rms", np.sqrt(np.mean(raw**2))), ("std", np.std(raw))):
        got = rtmc(norm=norm, eps=0.0).run(by_hand())
        np.testing.assert_allclose(got.advantage, raw / size, atol=1e-12)
        assert got.metrics["credit/rtmc/scale_mean"] == pytest.approx(size)


@FAST
@given(groups=groups)
def test_without_prior_and_repeated_actions_it_is_gigpos_step_term(groups):
    told = [
        [(won, [(p, f"{k} {t}") for t, (p, _) in enumerate(steps)]) for k, (won, steps) in enumerate(group)]
        for group in groups
        if len(group) > 1
    ]
    if not told:
        return
    table = table_of(told)
    gigpo = Pipeline.from_config({"returns": {}, "gigpo": {"norm": "mean"}}).run(table)
    got = rtmc(gamma=0.95, n_prior=0.0).run(table)
    np.testing.assert_allclose(got.advantage, gigpo.columns["gigpo.step"], atol=1e-12)


@FAST
@given(groups=groups, n_prior=st.sampled_from([0.0, 1.0, 3.0]))
def test_it_is_the_definition(groups, n_prior):
    table = table_of(groups)
    result = rtmc(gamma=0.9, n_prior=n_prior).run(table)
    for group in np.unique(table.group):
        members = np.flatnonzero(table.group == group)
        tree, starts = {}, {}
        for i in members:
            starts.setdefault(table.trajectory[i], result.returns[i])
            node = tree.setdefault(table.anchor[i], {}).setdefault(table.action[i], {})
            node.setdefault(table.trajectory[i], result.returns[i])
        for i in members:
            actions = tree[table.anchor[i]]
            seen = [x for node in actions.values() for x in node.values()]
            value = (sum(seen) + n_prior * np.mean(list(starts.values()))) / (len(seen) + n_prior)
            want = np.mean(list(actions[table.action[i]].values())) - value if len(starts) > 1 else 0.0
            assert result.advantage[i] == pytest.approx(want, abs=1e-7)


@pytest.mark.parametrize("norm", ["rms", "std", "none"])
def test_ties_are_exactly_zero(norm):
    """Three equal returns that are no binary fraction; and a state whose mean is the group's."""
    same = table_of([[(True, path("x:go")), (True, path("x:look")), (True, path("x:go"))]])
    assert not rtmc(norm=norm, gamma=0.3).run(same).advantage.any()
    alike = table_of([[(True, path("x:go")), (False, path("x:go")), (False, path("x:go"))]])
    assert not rtmc(norm=norm).run(alike).advantage.any()


def test_a_lone_trajectory_gets_zero():
    table = table_of([[(True, path("x:go y:go z:go"))], [(True, path("x:go")), (False, path("x:look"))]])
    advantage = rtmc(gamma=0.9).run(table).advantage
    assert not advantage[:3].any() and advantage[3:].all()
