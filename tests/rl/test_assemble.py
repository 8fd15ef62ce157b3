"""Trajectories → step table and token rows."""

import numpy as np
import pytest

from agent.types import Trajectory
from credit.pipeline import Pipeline
from credit.table import TERMINAL
from rl.rows.assemble import TokenAdvantage, advantage_of, by_token, span_advantage, step_table, token_rows
from tests.rl.helpers import random_groups, step


def trajectory(steps, *, group=0, index=0, success=False):
    return Trajectory(f"task-{group}", "look", "look", group, index, 0, steps, success=success)


def test_table_rows_and_rewards():
    win = trajectory([step(0, [1], [2], fresh=True), step(1, [3], [4, 5], reward=1.0)], success=True)
    loss = trajectory([step(0, [1], [2, 2], fresh=True, well_formed=False)], index=1)
    table = step_table([[loss, win]])  # rows are in order of index whatever the order given
    assert table.trajectory.tolist() == [0, 0, 1] and table.t.tolist() == [0, 1, 0]
    assert table.reward.tolist() == [0, 10, 0] and table.outcome.tolist() == [10, 10, 0]
    assert table.length.tolist() == [1, 2, 2]
    assert table.valid.tolist() == [True, True, False]
    assert table.next_anchor.tolist() == ["anchor 1", TERMINAL, "anchor 1"]
    assert step_table([[win]], success_reward=1.0).outcome.tolist() == [1, 1]


def test_long_losers_do_not_move_the_baseline():
    """A win in 2 steps and a loss in 8: +5 and −5, not +8 and −2."""
    win = trajectory([step(t, [1], [2], fresh=t == 0, reward=float(t == 1)) for t in range(2)], success=True)
    loss = trajectory([step(t, [1], [2], fresh=t == 0) for t in range(8)], index=1)
    pipeline = Pipeline.from_config({"grpo": {"norm": "mean"}})
    advantage = pipeline.run(step_table([[win, loss]])).advantage
    assert advantage.tolist() == pytest.approx([5.0] * 2 + [-5.0] * 8)


def test_append_only_rows():
    tr = trajectory([step(0, [1, 2], [3, 4], fresh=True), step(1, [5], [6]), step(2, [7, 8], [9, 9, 9])])
    (row,) = token_rows([[tr]])
    assert row.ids.tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 9]
    assert row.spans == ((2, 4, 0), (5, 6, 1), (8, 11, 2))
    assert row.logp_sampled.tolist() == pytest.approx([-1.0, -1.1, -1.0, -1.0, -1.1, -1.2])


def test_stepwise_rows_and_a_restart():
    steps = [step(0, [1, 2], [3], fresh=True), step(1, [4], [5]), step(2, [6, 7], [8], fresh=True)]
    rows = token_rows([[trajectory(steps)], [trajectory([step(0, [1], [2], fresh=True)], group=1)]])
    assert [row.spans for row in rows] == [((2, 3, 0), (4, 5, 1)), ((2, 3, 2),), ((1, 2, 3),)]
    assert [row.trajectory for row in rows] == [0, 0, 1]


@pytest.mark.parametrize("append", [True, False])
def test_ids_under_the_loss_are_the_ids_sampled(append):
    groups = random_groups(append=append, seed=3)
    sampled = [s.response_ids for group in groups for tr in group for s in tr.steps]
    trained = {n: row.ids[a:b].tolist() for row in token_rows(groups) for a, b, n in row.spans}
    assert [trained[n] for n in range(len(sampled))] == sampled
    assert sum(len(s) for s in sampled) == step_table(groups).length.sum()


def test_what_was_not_sampled_is_never_under_the_loss():
    """A response cut by length: the closing token comes with the next prompt; only sampled ids are spans."""
    cut = step(0, [1, 2], [3, 4], fresh=True, finish="length")
    tr = trajectory([cut, step(1, [99, 5], [6])])
    (kept,) = token_rows([[tr]], mask_truncated=False)
    assert kept.spans == ((2, 4, 0), (6, 7, 1)) and kept.ids[4] == 99
    (masked,) = token_rows([[tr]])
    assert masked.spans == ((6, 7, 1),) and masked.logp_sampled.tolist() == [-1.0]
    assert masked.ids.tolist() == kept.ids.tolist()


def test_rows_without_a_loss_token_are_left_out():
    cut = trajectory([step(0, [1], [2], fresh=True, finish="length")])
    assert token_rows([[cut]]) == []
    assert token_rows([]) == []
    assert token_rows([[trajectory([step(0, [1], [], fresh=True)])]]) == []


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([], "has no steps"),
        ([step(0, [1], [2])], "continues a row that nothing opened"),
        ([step(1, [1], [2], fresh=True)], "is at position 0"),
        ([step(0, [1], [2, 3], fresh=True, logp_sampled=[-1.0])], "2 response tokens but 1 log-prob"),
        ([step(0, [], [2], fresh=True)], "opens a row without a prompt"),
    ],
)
def test_bad_trajectories(steps, message):
    with pytest.raises(ValueError, match=f"trajectory 4 of group 7 .task-7.*{message}"):
        token_rows([[trajectory(steps, group=7, index=4)]])


def test_values_of_rows_are_dealt_out_to_the_tokens_sampled():
    """Two trajectories: one grows in a row of two responses, the other's second token was put there."""
    grown = trajectory([step(0, [1, 2], [5, 6], fresh=True), step(1, [3], [7])])
    forced = trajectory([step(0, [1], [5, 6, 7], fresh=True, forced=(1, 2))], group=1)
    groups = [[grown], [forced]]
    rows = token_rows(groups, mask_truncated=False)
    values = [np.arange(len(row.logp_sampled)) + 10.0 * number for number, row in enumerate(rows)]
    assert by_token(groups, rows, values) == [[0.0, 1.0], [2.0], [10.0, None, 11.0]]


def test_advantages_per_step_and_per_token():
    assert span_advantage(np.array([1.0, 2.0]), 1, 3).tolist() == [2.0, 2.0, 2.0]
    per_token = TokenAdvantage(np.arange(5.0), np.array([0, 2, 5]))
    assert span_advantage(per_token, 1, 3).tolist() == [2.0, 3.0, 4.0]
    with pytest.raises(ValueError, match="step row 1 has 2 tokens but 3 token advantages"):
        span_advantage(per_token, 1, 2)


def test_advantage_of_takes_the_finer_one():
    groups = random_groups()
    table = step_table(groups)
    credit = Pipeline.from_config({"returns": {}, "gigpo": {}}).run(table)
    assert advantage_of(table, credit) is credit.advantage
    object.__setattr__(credit, "token_advantage", np.zeros(int(table.length.sum())))
    assert isinstance(advantage_of(table, credit), TokenAdvantage)
