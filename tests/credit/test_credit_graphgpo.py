"""GraphGPO: distances on the group's graph, the returns made of them, and its limits."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from credit.pipeline import Pipeline
from credit.stages.graphgpo import distances_to, goal_distances
from credit.table import TERMINAL
from tests.credit.walks import grouped, groups_of_walks, table_of, unknown_end

FAST = settings(max_examples=40, deadline=None, derandomize=True)


def run(table, penalty=0.0, gigpo=None, **options):
    stages = {"returns": {"invalid_penalty": penalty}, "graphgpo": options, "gigpo": gigpo or {}}
    return Pipeline.from_config(stages).run(table)


# s -> a -> b -> goal; a detour s -> c -> a -> goal; a failure s -> b -> d, d leads nowhere
DETOUR = table_of("s a b !", "s c a !", "s b d")


def test_distances_by_hand():
    # edges s-a a-b b-goal s-c c-a a-goal s-b b-d: d(a) = d(b) = 1, d(s) = d(c) = 2, d(d) = 1 + 2
    before, after = goal_distances(DETOUR)
    assert before.tolist() == [2, 1, 1, 2, 2, 1, 2, 1]
    assert after.tolist() == [1, 1, 0, 2, 1, 0, 1, 3]


@pytest.mark.parametrize(
    ("normalize", "exponents"), [(True, [0, 1, 0, 1, 0, 0, 0, 3]), (False, [1, 1, 0, 2, 1, 0, 1, 3])]
)
def test_returns_by_hand(normalize, exponents):
    result = run(DETOUR, gamma=0.5, normalize_distance=normalize)
    assert result.returns.tolist() == [10 * 0.5**e for e in exponents]


def test_what_is_reported():
    metrics = run(DETOUR).metrics
    assert metrics["credit/graphgpo/groups_with_goal"] == 1
    assert metrics["credit/graphgpo/distance_mean"] == 12 / 8
    assert metrics["credit/graphgpo/progress_in_failures"] == 1 / 2
    assert metrics["credit/graphgpo/detour_in_successes"] == 2 / 6


@pytest.mark.parametrize(
    ("options", "step"),
    [
        ({}, 1.25),  # at s: 10 / 2 for the step to a, one from the goal, 10 / 4 for staying two away
        ({"normalize_distance": True}, 2.5),  # 10 for coming one step nearer, 5 for standing still
    ],
)
def test_the_step_term_follows_in_anchor_groups(options, step):
    result = run(table_of("s a !", "s s"), gamma=0.5, gigpo={"norm": "mean"}, **options)
    assert result.advantage.tolist() == [5 + step, 5, -5 - step]  # the outcome is worth +-5


def test_the_penalty_is_that_of_the_returns_stage():
    result = run(table_of("s a !", "s s", valid=[1, 0, 0]), penalty=0.25, gamma=0.5)
    np.testing.assert_allclose(result.returns, [5, 9.75, 2.25], rtol=0, atol=1e-12)


def test_without_a_success_all_is_equally_far_and_the_step_term_is_zero():
    table = table_of("s a b", "s c", "x x", group=[0, 0, 1])
    result = run(table)
    assert set(result.columns["graphgpo.distance"]) | set(result.columns["graphgpo.next_distance"]) == {1.0}
    assert not result.advantage.any()


def test_a_place_called_success_is_not_the_goal():
    table = table_of("s success a", "s b !")
    assert goal_distances(table)[1].tolist() == [3, 3, 1, 0]


def test_where_a_failures_end_is_not_known_it_leads_nowhere():
    table = unknown_end()
    assert table.next_anchor.tolist() == [TERMINAL, TERMINAL]
    assert goal_distances(table)[1].tolist() == [0, 2]


def test_a_success_that_pays_nothing_has_no_goal():
    assert run(table_of("s a !", "s s", reward=0.0)).metrics["credit/graphgpo/groups_with_goal"] == 0


def test_groups_do_not_share_a_graph():
    table = table_of("s a !", "s a b", group=[0, 1])
    assert goal_distances(table)[0].tolist() == [2, 1, 1, 1]


def test_similar_places_are_one_node():
    table = table_of("hall-shelf-1 !", "hall-shelf-2 bath")
    assert goal_distances(table)[0].tolist() == [1, 2]
    assert goal_distances(table, 0.9)[0].tolist() == [1, 1]
    assert run(table, nodes="similarity", similarity=0.9).columns["graphgpo.next_distance"].tolist() == [0, 2]


def test_it_needs_an_estimator_that_compares_returns():
    with pytest.raises(ValueError, match="graphgpo changes returns, which grpo does not look at"):
        Pipeline.from_config({"returns": {}, "graphgpo": {}, "grpo": {}})


@FAST
@given(
    edges=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=15),
    goals=st.lists(st.integers(0, 6), unique=True, max_size=2),
)
def test_distances_are_those_of_floyd_and_warshall(edges, goals):
    want = np.full((7, 7), np.inf)
    np.fill_diagonal(want, 0)
    for a, b in edges:
        want[a, b] = min(want[a, b], 1)
    for k in range(7):
        want = np.minimum(want, want[:, [k]] + want[[k], :])
    source, target = (np.array([edge[i] for edge in edges], dtype=int) for i in (0, 1))
    got = distances_to(np.array(sorted(goals), dtype=int), source, target, 7)
    assert got.tolist() == want[:, goals].min(axis=1, initial=np.inf).tolist()


@FAST
@given(groups=groups_of_walks)
def test_returns_lie_above_zero_and_at_most_at_the_reward(groups):
    returns = run(grouped(groups)).returns
    assert ((returns > 0) & (returns <= 10)).all()


@FAST
@given(groups=groups_of_walks, normalize=st.booleans())
def test_with_gamma_one_it_is_grpo(groups, normalize):
    table = grouped(groups)
    got = run(table, gamma=1.0, normalize_distance=normalize).advantage
    want = Pipeline.from_config({"grpo": {}}).run(table).advantage
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-12)
