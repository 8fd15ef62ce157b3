"""Demonstrations for a policy to imitate: an expert plays any environment, with random mistakes if asked for.

An expert alone never errs, so an imitator never sees how to recover from a refused command. With mistakes,
some steps are replaced by wrong ones and the expert goes on from there (as in DAgger, arXiv 1011.0686, but
with random mistakes instead of the learner's own).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from envs.base import Env, Observation, Outcome

Mistake = Callable[[random.Random, Observation], tuple[str, str]]
"""Draws a wrong step: a thought and an action in the expert's form that do not fit the situation."""


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
    """A curriculum: demonstrations of ever new tasks, in numbered shards.

    A frozen dataclass of the options that decide its walks; they are written into the policy's provenance.
    """

    def __call__(self, seed: int, shard: int) -> Iterator[Walk]:
        """Yields the walks of one shard that are worth imitating; equal arguments give equal walks."""


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
        mistake: Draws a mistake for this environment.
        rng: Draws the mistakes.
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
