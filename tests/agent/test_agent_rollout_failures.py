"""Environments that fail, trajectories that take too long, and a process that hangs."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from agent.policy import Sampling
from agent.rollout.groups import MAX_REROLLS, RolloutError
from agent.rollout.options import RolloutOptions
from agent.rollout.rollout import Rollout
from agent.rollout.watchdog import EXIT_CODE
from configs.seeds import derive
from tests.agent.streaming import BrokenPool, LatePool, StreamingPolicy
from tests.agent.test_agent_rollout import TOKENIZER, build, play
from tests.toy import ToyEnv, scripted_expert, toy_tasks

MODES = pytest.mark.parametrize("mode", ["deterministic", "free"])
ROOT = Path(__file__).resolve().parents[2]


class Clock:
    """Stands in for the module `time`."""

    now = 0.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


def run(mode, breaks, on_failure, *, tasks=4, group_size=3, pool=None, **options):
    policy = StreamingPolicy(TOKENIZER, scripted_expert(0.4))
    pool = pool or BrokenPool(ToyEnv, breaks)
    running = Rollout(
        policy,
        Sampling(),
        pool,
        toy_tasks(tasks),
        group_size=group_size,
        prompts=build(),
        max_parallel=options.pop("max_parallel", 5),
        seed=0,
        options=RolloutOptions(mode=mode, on_failure=on_failure, **options),
    )
    try:
        groups = running.play()
    finally:
        assert policy.live == set() and not pool._traces
    return groups, running.counts


def intact(tasks=4, group_size=3):
    return play(StreamingPolicy(TOKENIZER, scripted_expert(0.4)), build(), tasks=tasks, group_size=group_size)


@MODES
def test_a_failure_stops_the_rollout_and_says_where(mode):
    with pytest.raises(RolloutError, match=r"worker of 4 died \(lost; member 1 of group 1\).*drop or reroll"):
        run(mode, lambda number, t: number == 4 and t == 1, "stop")


@MODES
@pytest.mark.parametrize("t", [0, 1])  # when it is opened, and after a step
def test_a_dropped_trajectory_is_missing_and_nothing_else(mode, t):
    groups, counts = run(mode, lambda number, at: (number, at) == (4, t), "drop")
    expected = intact()
    del expected[1][1]
    assert groups == expected
    assert (counts.failed, counts.rerolled, counts.lost) == ({"lost": 1}, 0, {})


@MODES
def test_a_group_that_cannot_have_two_members_is_given_up(mode):
    """Members 3 and 5 of the second group (openings 3 to 5) die: one is left, which has no sibling."""
    groups, counts = run(mode, lambda number, t: number in (3, 5) and t == 1, "drop")
    expected = intact()
    assert groups == [expected[0], *expected[2:]]
    assert counts.failed == {"lost": 2}
    assert counts.lost == {toy_tasks(4)[1].id: "lost: worker of 5 died"}


@MODES
def test_groups_of_one_are_given_up_with_their_member(mode):
    groups, counts = run(mode, lambda number, t: number == 2 and t == 1, "drop", group_size=1)
    expected = intact(group_size=1)
    assert groups == [expected[0], expected[1], expected[3]]
    assert list(counts.lost) == [toy_tasks(4)[2].id]


@MODES
def test_a_group_is_rerolled_whole_with_other_draws_from_the_same_state(mode):
    """One member dies once. All of its group are played again; the other groups do not notice."""
    groups, counts = run(mode, lambda number, t: number == 4 and t == 2, "reroll", max_parallel=12)
    expected = intact()
    again = groups[1]
    assert [groups[0], *groups[2:]] == [expected[0], *expected[2:]]
    assert [tr.index for tr in again] == [0, 1, 2]
    assert [tr.seed for tr in again] == [derive(0, "trajectory", 1, k, "again", 1) for k in range(3)]
    assert again[0].steps[0].observation == expected[1][0].steps[0].observation
    assert (counts.failed, counts.rerolled, counts.lost) == ({"lost": 1}, 1, {})


@MODES
def test_a_group_that_always_fails_is_given_up(mode):
    task = toy_tasks(4)[1].id

    class Cursed(BrokenPool):
        def _open(self, key):
            super()._open(key)
            self._number[key] = self._traces[key].task.id

    groups, counts = run(
        mode, None, "reroll", pool=Cursed(ToyEnv, lambda name, t: name == task and t == 1, "timeout")
    )
    expected = intact()
    assert groups == [expected[0], *expected[2:]]
    assert counts.rerolled == MAX_REROLLS and counts.failed == {"timeout": MAX_REROLLS + 1}
    assert list(counts.lost) == [task]


@MODES
def test_an_environment_that_raises_is_a_failure_like_any_other(mode):
    class Raising(ToyEnv):
        def step(self, action):
            if self._task.id == "train-2" and self._state[2] == 1:
                raise ZeroDivisionError("a bug")
            return super().step(action)

    policy = StreamingPolicy(TOKENIZER, scripted_expert(1.0))
    options = RolloutOptions(mode=mode, on_failure="drop")
    running = Rollout(
        policy,
        Sampling(),
        Raising,
        toy_tasks(4),
        group_size=2,
        prompts=build(),
        max_parallel=8,
        seed=0,
        options=options,
    )
    assert [g[0].task_id for g in running.play()] == ["train-0", "train-1", "train-3"]
    assert "a bug" in running.counts.lost["train-2"]


@MODES
def test_a_trajectory_that_takes_too_long_has_failed(mode, monkeypatch):
    """Opening 4 never answers, and time passes only where it is waited for; the rest is not touched."""
    clock = Clock()
    monkeypatch.setattr("agent.rollout.rollout.time", clock)
    pool = LatePool(ToyEnv, {4}, None, sleep=clock.sleep)
    groups, counts = run(mode, None, "drop", pool=pool, time_limit_s=500.0)
    assert 500 < clock.now < 501
    expected = intact()
    del expected[1][1]
    assert groups == expected
    assert counts.failed == {"time_limit": 1}


@pytest.mark.slow
@pytest.mark.parametrize("place", ["environment", "policy"])
@MODES
def test_the_watchdog_dumps_stacks_and_ends_a_process_that_hangs(mode, place):
    stuck = {1} if place == "environment" else set()
    script = f"""
        import time
        from agent.policy import Sampling
        from agent.rollout.rollout import Rollout
        from agent.rollout.options import RolloutOptions
        from tests.agent.streaming import LatePool, StreamingPolicy
        from tests.agent.test_agent_rollout import TOKENIZER, build
        from tests.toy import ToyEnv, scripted_expert, toy_tasks

        class Hanging(StreamingPolicy):
            def _answer(self, request):
                if {place == "policy"}:
                    time.sleep(3600)
                return super()._answer(request)

        class Sleeping(LatePool):
            def _ready(self, timeout):
                return super()._ready(3600 if timeout is None else timeout)

        Rollout(
            Hanging(TOKENIZER, scripted_expert(0.4)), Sampling(), Sleeping(ToyEnv, {stuck}, None),
            toy_tasks(2), group_size=2, prompts=build(), max_parallel=4, seed=0,
            options=RolloutOptions(mode={mode!r}, watchdog_s=2.0),
        ).play()
    """
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], cwd=ROOT, capture_output=True, text=True
    )
    assert ended.returncode == EXIT_CODE, ended.stderr
    assert "nothing has moved for 2 s" in ended.stderr
    assert "File" in ended.stderr and ("_answer" if place == "policy" else "_ready") in ended.stderr
    if place == "environment":
        assert "1 environments: train-0 (member 1, step 0)" in ended.stderr


def test_the_watchdog_lets_a_rollout_be_that_moves():
    groups = play(
        StreamingPolicy(TOKENIZER, scripted_expert(0.4)),
        build(),
        tasks=4,
        group_size=3,
        options=RolloutOptions(watchdog_s=60.0),
    )
    assert groups == intact()
