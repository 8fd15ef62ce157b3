"""Environments for the conformance kit: one that keeps the contract, and one for each broken promise."""

from __future__ import annotations

import random
import uuid
from dataclasses import dataclass, replace

import numpy as np
import torch

from envs.base import Env, EnvError, Observation, Outcome


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


class ScoresNan(Counter):
    def step(self, action):
        return replace(super().step(action), score=float("nan"))


class RewardsNothing(Counter):
    def step(self, action):
        return replace(super().step(action), reward=None)


class SaysPerhaps(Counter):
    def step(self, action):
        return replace(super().step(action), terminated=None)


class SolvedButGoingOn(Counter):
    def step(self, action):
        outcome = super().step(action)
        return replace(outcome, success=outcome.observation.anchor == "2" or outcome.success)


class ShowsBytes(Counter):
    def observe(self):
        return replace(super().observe(), text=b"at")


class AnchorsAList(Counter):
    def observe(self):
        return replace(super().observe(), anchor=["at", self.state[0]])


class InstructsInPieces(Counter):
    def reset(self, task, seed=0):
        observation = super().reset(task, seed)
        self.instruction = ["count", "to", "four"]
        return observation


class StepsAsGymnasium(Counter):
    def step(self, action):
        outcome = super().step(action)
        return outcome.observation, outcome.reward, outcome.terminated, outcome.truncated, {}


class StepsAsOldGym(Counter):
    def step(self, action):
        outcome = super().step(action)
        return outcome.observation, outcome.reward, outcome.done, {}


class ResetsAsGymnasium(Counter):
    def reset(self, task, seed=0):
        return super().reset(task, seed), {}


class ReturnsText(Counter):
    def step(self, action):
        return super().step(action).observation.text


class RestoresNothing(Counter):
    def restore(self, snapshot):
        super().restore(snapshot)


class DrawsWith(Counter):
    """Draws in every step, and says so in the text."""

    def draw(self):
        raise NotImplementedError

    def step(self, action):
        outcome = super().step(action)
        return replace(outcome, observation=replace(outcome.observation, text=f"drew {self.draw()}"))


class DrawsFromNumpy(DrawsWith):
    def draw(self):
        return np.random.randint(100)


class DrawsFromTorch(DrawsWith):
    def draw(self):
        return torch.rand(1).item()


class SeedsTheWorld(DrawsWith):
    def draw(self):
        random.seed(3)
        return random.random()


class DrawsAndPutsBack(DrawsWith):
    """What no look at the state tells: it is as it was."""

    def draw(self):
        state = random.getstate()
        number = random.random()
        random.setstate(state)
        return number


class DrawsAnew(DrawsWith):
    def draw(self):
        return random.Random().random()


class NamesItself(DrawsWith):
    def draw(self):
        return uuid.uuid4()


class ResetsAtRandom(Counter):
    def reset(self, task, seed=0):
        np.random.shuffle([1, 2])
        return super().reset(task, seed)
