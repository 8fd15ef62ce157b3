"""What a search remembers: states still to answer in, and answers that were played."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from agent.types import Group, Step, Trajectory
from envs.base import Observation, Outcome, Task


@dataclass(slots=True)
class Node:
    """A state to answer in.

    Attributes:
        path: Steps from the start.
        observation: What is seen there.
        key: Of what stands there in the pool; None: it has to be gone to again.
    """

    path: list[Step]
    observation: Observation
    key: int | None


@dataclass(slots=True)
class Search:
    """One task's search; `stack` holds the states not answered in yet, the next one last."""

    task: Task
    group: int
    env_seed: int
    instruction: str = ""
    stack: list[Node] = field(default_factory=list)
    found: Group = field(default_factory=list)
    answers: int = 0


@dataclass(frozen=True, slots=True)
class Tried:
    """An answer that was played.

    Attributes:
        key: Of what stands after it in the pool.
        step: As a step of the trajectory from the start.
        outcome: What the environment said.
    """

    key: int
    step: Step
    outcome: Outcome

    def alone(self, search: Search, group: int, index: int) -> Trajectory:
        """The step as a trajectory of its own, a member of the group of its state's answers."""
        outcome, task = self.outcome, search.task
        return Trajectory(
            task.id,
            task.family,
            search.instruction,
            group,
            index,
            0,
            [replace(self.step, t=0)],
            outcome.success,
            outcome.score,
            outcome.truncated,
        )
