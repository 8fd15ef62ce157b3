"""3SPO's state score: counts over updates, the reward made of them, and the readings of it."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from credit.pipeline import Pipeline
from credit.stages import sso
from tests.credit.walks import grouped, groups_of_walks, table_of, unknown_end

FAST = settings(max_examples=30, deadline=None, derandomize=True)


def run(table, state=None, penalty=0.0, **options):
    stages = {"returns": {"invalid_penalty": penalty}, "sso": options, "gigpo": {"norm": "mean"}}
    return Pipeline.from_config(stages).run(table, state=None if state is None else {"sso": state})


def test_score_by_hand():
    n, n_success = np.array([0, 4, 4, 20, 20, 20]), np.array([0, 0, 2, 1, 2, 20])
    got = sso.state_score(n, n_success, 100, alpha=0.5, xi=10, zeta=0.06)
    # never seen; few failures; half solved: 100^(-0.5/2); rate 0.05 <= zeta after 19 failures: hopeless;
    # rate 0.1 > zeta; solved: 100^-0.5
    np.testing.assert_allclose(got, [1, 1, 100**-0.25, 0, 100**-0.05, 0.1], rtol=1e-6)
    assert sso.n_rollouts(got, 8).tolist() == [8, 8, 3, 0, 7, 1]


def test_reward_by_hand():
    weight = sso.novelty_weight(np.array([0, 10]), 0.1)
    np.testing.assert_allclose(weight, [0.5, 0.5 / np.e])
    reward = sso.step_reward(
        np.array([0.9]), np.array([0.4]), np.array([0.2]), np.array([True]), np.array([1])
    )
    np.testing.assert_allclose(reward, [0.2 + 0.3 * 0.5 + 0.5])


def test_statistics_count_a_state_once_a_trajectory_and_leave_the_old_ones_alone():
    first = sso.update_statistics(sso.new_statistics(), [("aab", True), ("a", False), ("", False)])
    assert first == {"t": 4, "counts": {"a": [2, 1], "b": [1, 1]}}
    second = sso.update_statistics(first, [("b", False)])
    assert second == {"t": 5, "counts": {"a": [2, 1], "b": [2, 1]}}
    assert first == {"t": 4, "counts": {"a": [2, 1], "b": [1, 1]}}
    assert sso.reloaded(second) == {"t": 5, "counts": second["counts"]}
    assert sso.reloaded(sso.update_statistics(second, [("abc", True)]))["t"] == 1 + 7


def test_advantage_of_a_states_samples():
    got = sso.step_advantage(np.array([1.0, 0.0, 0.5, 0.3]), ["s", "s", "s", "x"])
    assert got.tolist() == [0.5, -0.5, 0.0, 0.0]
    got = sso.step_advantage(np.array([1.0, 0.0]), ["s", "s"], "mean_std")
    np.testing.assert_allclose(got, [0.5**0.5, -(0.5**0.5)], rtol=1e-5)


# s: visited by 20, 10 of them successful; a: 20 and 0, hopeless; b is new
KNOWN = {"t": 31, "counts": {"s": [20, 10], "a": [20, 0]}}
S = 31 ** (-0.1 * 10 / (20 + 1e-6))


def test_returns_by_hand():
    table = table_of("s a s", "s b !")
    result = run(table, KNOWN, alpha_s=0.1, penalty=0.5)
    w20, w0 = 0.5 * np.exp(-2.0), 0.5
    want = [
        w20 + (0.5 - w20) * (S - 0),  # s -> a: another state, nothing to be found there
        w20 + (0.5 - w20) * (0 - S),  # a -> s
        w20 + (0.5 - w20) * (S - 1),  # s -> b, unexplored
        w0 + 0.5,  # b -> goal
    ]
    np.testing.assert_allclose(result.returns, want, atol=1e-12)
    np.testing.assert_allclose(result.columns["sso.score"], [S, 0, S, 1], atol=1e-12)
    np.testing.assert_allclose(result.columns["sso.next_score"], [0, S, 1, 0], atol=1e-12)
    np.testing.assert_allclose(
        result.columns["gigpo.step"],
        [want[0] / 2 - want[2] / 2, 0] + [want[2] / 2 - want[0] / 2, 0],
        atol=1e-12,
    )
    assert result.metrics["credit/sso/states_known"] == 2
    assert result.metrics["credit/sso/unvisited_fraction"] == 0.25


def test_invalid_steps_keep_their_penalty():
    table = table_of("s a", "s !", valid=[0, 1])
    plain, punished = run(table), run(table, penalty=0.5)
    np.testing.assert_allclose(plain.returns - punished.returns, [0.5, 0.0], atol=1e-12)


def test_the_state_is_json_and_takes_in_the_update_where_trajectories_end_included():
    first = run(table_of("s a s", "s b !", "s s c")).state["sso"]
    assert first == {"t": 4, "counts": {"s": [3, 1], "a": [1, 0], "b": [1, 1], "c": [1, 0]}}
    again = json.loads(json.dumps(first))
    assert again == first
    table = table_of("s a !", "s d")
    assert run(table, again).returns.tolist() == run(table, first).returns.tolist()
    assert first["t"] == 4, "the state handed in is left alone"


def test_counts_make_a_difference_at_the_next_update():
    table = table_of("s a", "s b", "s s")
    state = None
    scores = []
    for _ in range(5):
        result = run(table, state, xi=2.0)
        state = result.state["sso"]
        scores.append(result.columns["sso.score"].tolist())
    assert scores[0] == [1.0] * 3
    assert scores[-1] == [0.0] * 3, "ten failures and no success: hopeless"


def test_reloading_changes_t_only():
    table = table_of("s a !", "s b")
    plain, reloaded = run(table, KNOWN), run(table, KNOWN, compat_reload_t=True)
    assert (plain.state["sso"]["t"], reloaded.state["sso"]["t"]) == (33, 43)
    assert plain.state["sso"]["counts"] == reloaded.state["sso"]["counts"]
    assert plain.columns["sso.score"][0] > reloaded.columns["sso.score"][0]


@pytest.mark.parametrize(
    ("novel", "want"),
    [
        ("changed", [0, 1, 1, 1, 1]),
        ("first_in_traj", [0, 1, 0, 1, 1]),
        ("first_global", [0, 0, 0, 1, 0]),  # a is known, b is not; the goal has been reached before
    ],
)
def test_what_is_novel(novel, want):
    result = run(table_of("s s a s b !", "s s"), KNOWN, novel=novel)
    assert result.columns["sso.novel"][:5].tolist() == want


def test_the_goal_is_new_to_all_as_long_as_no_success_is_known():
    table = table_of("s !", "s s")
    failures = {"t": 2, "counts": {"s": [1, 0]}}
    assert run(table, failures, novel="first_global").columns["sso.novel"].tolist() == [1, 0]


def test_success_pays_at_the_last_step_or_along_the_trajectory():
    table = table_of("s a !", "s a")
    last, along = run(table), run(table, success_at="trajectory")
    np.testing.assert_allclose(along.returns - last.returns, [0.5, 0, 0], atol=1e-12)


def test_rewards_may_be_discounted_along_the_trajectory():
    table = table_of("s a !", "s a")
    own = run(table).returns
    want = [own[0] + 0.5 * own[1], own[1], own[2]]
    np.testing.assert_allclose(run(table, gamma=0.5).returns, want, atol=1e-12)


def test_an_unknown_end_changes_nothing():
    table = unknown_end()
    result = run(table, KNOWN)
    assert result.columns["sso.novel"].tolist() == [1, 0]
    assert result.returns[1] == 0.0
    assert result.columns["sso.next_score"][1] == result.columns["sso.score"][1]


@FAST
@given(groups=groups_of_walks)
def test_where_all_succeed_it_is_gigpo(groups):
    table = grouped([[f"{walk} !" for walk in members if "!" not in walk] or ["a !"] for members in groups])
    gigpo = Pipeline.from_config({"returns": {}, "gigpo": {"norm": "mean"}}).run(table)
    assert run(table, penalty=0.1).advantage.tolist() == gigpo.advantage.tolist()


@FAST
@given(groups=groups_of_walks, split=st.integers(0, 3))
def test_counts_are_the_same_in_one_update_or_two(groups, split):
    first = run(grouped(groups[:split])).state["sso"]
    second = run(grouped(groups[split:]), first).state["sso"]
    assert second == run(grouped(groups)).state["sso"]


def test_it_needs_returns_and_an_estimator_that_compares_them():
    with pytest.raises(ValueError, match="credit.sso: some rows have no return"):
        Pipeline.from_config({"sso": {}, "gigpo": {}}).run(table_of("s a"))
    with pytest.raises(ValueError, match="sso changes returns, which grpo does not look at"):
        Pipeline.from_config({"returns": {}, "sso": {}, "grpo": {}})
