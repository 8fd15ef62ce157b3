"""The conformance kit: ALFWorld passes it, and it catches every kind of broken environment."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import pytest

from envs.alfworld import AlfworldEnv
from envs.alfworld.engine import NOTHING_HAPPENS
from envs.base import Env, EnvError, Observation, Outcome
from envs.checks import NonConforming, check_env
from tests.envs.small_games import kitchen, porch


@pytest.mark.parametrize("anchor", ["state", "text"])
def test_alfworld_conforms(anchor):
    def refused(outcome):
        return outcome.observation.text == NOTHING_HAPPENS

    check_env(lambda: AlfworldEnv(max_steps=12, anchor=anchor), [kitchen(), porch()], refused=refused)


@dataclass(frozen=True)
class Count:
    """A task of the counter below."""

    id: str = "count"
    family: str = "count"
    split: str = "train"


class Counter(Env):
    """The smallest environment that keeps the contract: "up" counts, four wins, ten steps end it."""

    def __init__(self):
        self.state = None

    def observe(self):
        return Observation(f"at {self.state[0]}", str(self.state[0]), ("down", "up"))

    def reset(self, task, seed=0):
        self.instruction = "count to four"
        self.state = (0, 0)
        return self.observe()

    def step(self, action):
        if self.state is None:
            raise EnvError("step before reset")
        count, steps = self.state
        if count == 4 or steps == 10:
            raise EnvError("step after the end")
        count += {"up": 1, "down": -1}.get(action.strip(), 0)
        self.state = (count, steps + 1)
        won = count == 4
        return Outcome(self.observe(), float(won), won, steps == 9 and not won, won, float(won))

    def snapshot(self):
        return self.state

    def restore(self, snapshot):
        if not isinstance(snapshot, tuple):
            raise EnvError("not a snapshot")
        self.state = snapshot
        return self.observe()


def test_the_smallest_environment_conforms():
    check_env(Counter, [Count()], refused=lambda outcome: False)


class StepsBeforeReset(Counter):
    def step(self, action):
        if self.state is None:
            return None
        return super().step(action)


class StepsAfterEnd(Counter):
    def step(self, action):
        self.state = (self.state[0], min(self.state[1], 9)) if self.state else None
        return super().step(action)


class TakesAnySnapshot(Counter):
    def restore(self, snapshot):
        return self.observe()


class NeverEnds(Counter):
    def step(self, action):
        if self.state:
            self.state = (self.state[0], 0)
        return super().step(action)


class TimeIsSuccess(Counter):
    def step(self, action):
        outcome = super().step(action)
        return replace(outcome, success=outcome.done)


class TerminatesOnTime(Counter):
    def step(self, action):
        outcome = super().step(action)
        return replace(outcome, terminated=outcome.done, truncated=False)


class UsesGlobalRandom(Counter):
    def step(self, action):
        random.random()
        return super().step(action)


class DependsOnHistory(Counter):
    resets = 0

    def reset(self, task, seed=0):
        self.resets += 1
        return replace(super().reset(task, seed), text=f"reset {self.resets}")


class MutableSnapshot(Counter):
    def reset(self, task, seed=0):
        self.cell = [0, 0]
        return super().reset(task, seed)

    def step(self, action):
        outcome = super().step(action)
        self.cell[:] = self.state
        return outcome

    def snapshot(self):
        return self.cell

    def restore(self, snapshot):
        if not isinstance(snapshot, list):
            raise EnvError("not a snapshot")
        self.state = tuple(snapshot)
        return self.observe()


class SharesState(Counter):
    shared = [0]

    def reset(self, task, seed=0):
        self.shared[0] = 0
        return super().reset(task, seed)

    def step(self, action):
        outcome = super().step(action)
        self.shared[0] += 1
        observation = replace(outcome.observation, text=f"step {self.shared[0]}")
        return replace(outcome, observation=observation)


class CrashesOnUnicode(Counter):
    def step(self, action):
        action.encode("ascii")
        return super().step(action)


class NoInstruction(Counter):
    def reset(self, task, seed=0):
        observation = super().reset(task, seed)
        self.instruction = ""
        return observation


class ListsAList(Counter):
    def observe(self):
        return replace(super().observe(), admissible=["down", "up"])


class ListsTwice(Counter):
    def observe(self):
        return replace(super().observe(), admissible=("up", "up"))


class ScoresTwo(Counter):
    def step(self, action):
        return replace(super().step(action), score=2.0)


class RewardsNan(Counter):
    def step(self, action):
        return replace(super().step(action), reward=float("nan"))


@pytest.mark.parametrize(
    ("broken", "promise"),
    [
        (StepsBeforeReset, "before reset"),
        (StepsAfterEnd, "after the end"),
        (TakesAnySnapshot, "foreign value"),
        (NeverEnds, "ends within"),
        (TimeIsSuccess, "no success"),
        (TerminatesOnTime, "not terminated"),
        (UsesGlobalRandom, "global random"),
        (DependsOnHistory, "first observation"),
        (MutableSnapshot, "restore"),
        (SharesState, "another instance|continuation"),
        (NoInstruction, "instruction"),
        (ListsAList, "tuple"),
        (ListsTwice, "twice"),
        (ScoresTwo, "score"),
        (RewardsNan, "finite"),
    ],
)
def test_a_broken_environment_is_caught(broken, promise):
    with pytest.raises(NonConforming, match=promise) as caught:
        check_env(broken, [Count()])
    assert "'count'" in str(caught.value)


def test_a_crash_on_a_strange_action_is_not_hidden():
    with pytest.raises(UnicodeEncodeError):
        check_env(CrashesOnUnicode, [Count()])


def test_a_listed_command_that_is_refused_is_caught():
    with pytest.raises(NonConforming, match="listed command"):
        check_env(Counter, [Count()], refused=lambda outcome: outcome.observation.text == "at -1")


def test_the_kit_needs_a_task():
    with pytest.raises(ValueError, match="no tasks"):
        check_env(Counter, [])
