"""Walks that a policy may imitate: an expert's, with mistakes thrown in where asked for, in any environment.

An expert alone never errs, so nothing shows an imitator the way back from a refused command. With mistakes, a
step is now and then somebody else's, and the expert goes on from what came of it (as in DAgger, arXiv
1011.0686, but with drawn mistakes in place of the learner's own).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from envs.base import Env, Observation, Outcome

Mistake = Callable[[random.Random, Observation], tuple[str, str]]
"""Draws a thought and an action of the expert's form that the situation does not call for."""


class Expert(Protocol):
    """Plays from what it is shown.

    Attributes:
        thought: What the last action is for, in words.
    """

    thought: str

    def act(self, observation: Observation) -> str:
        """Chooses the next action and sets `thought`."""

    def observe(self, action: str, observation: Observation) -> None:
        """Takes in a step that someone else chose."""


@dataclass(frozen=True, slots=True)
class Demonstrated:
    """One step of a demonstration: what was seen, what was thought, what was done.

    Attributes:
        observation: Before the action.
        thought: What the action is for, in words.
        action: The command played.
        mistake: Whether the step is not the expert's.
    """

    observation: Observation
    thought: str
    action: str
    mistake: bool = False


@dataclass(frozen=True, slots=True)
class Walk:
    """A whole demonstration.

    Attributes:
        instruction: The task, as `Env.instruction` words it.
        steps: From the first observation on.
        outcome: Of the last step.
    """

    instruction: str
    steps: list[Demonstrated]
    outcome: Outcome


class Lessons(Protocol):
    """A curriculum: walks of ever new tasks, in shards that a seed tells apart.

    A frozen dataclass of the options that make its walks what they are; they are part of a policy's record.
    """

    def __call__(self, seed: int, shard: int) -> Iterator[Walk]:
        """Yields the walks of one shard worth imitating; equal arguments, equal walks."""


@dataclass(frozen=True)
class Curriculum:
    """How an embedded policy of one world is made.

    Attributes:
        lessons: What it learns from.
        tokens: How many it is trained on.
        policy: Options of its architecture (`rl.warmstart.embedded.Architecture`) that are not the defaults.
    """

    lessons: Lessons
    tokens: int
    policy: Mapping[str, Any] = field(default_factory=dict)


def record(
    env: Env, first: Observation, expert: Expert, mistake: Mistake, *, rng: random.Random, mistakes: float
) -> Walk:
    """Lets an expert play on from a reset environment.

    Args:
        env: Just reset.
        first: What its reset returned.
        expert: Knows the task.
        mistake: Makes a mistake of this environment.
        rng: Of the mistakes.
        mistakes: Probability that a step is a mistake.
    """
    observation, steps = first, []
    while True:
        action = expert.act(observation)
        step = Demonstrated(observation, expert.thought, action)
        if rng.random() < mistakes:
            step = Demonstrated(observation, *mistake(rng, observation), mistake=True)
        steps.append(step)
        outcome = env.step(step.action)
        if outcome.done:
            return Walk(env.instruction, steps, outcome)
        observation = outcome.observation
        if step.mistake:
            expert.observe(step.action, observation)
