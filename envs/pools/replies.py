"""What pools exchange: replies, failures, and the trace from which a trajectory is replayed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from envs.base import Observation, Outcome, Task

Reason = Literal["error", "lost", "timeout", "diverged", "refused"]


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a trajectory cannot go on.

    Attributes:
        reason: "error": the environment raised; playing it again would raise again. "lost": its worker or
            server died with it, more often than the pool tries again. "timeout": no reply in time, each
            time. "diverged": played again, it did not repeat. "refused": no server takes it.
        message: For people: what happened, where, and what to do.
    """

    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class Reply:
    """What became of one request.

    Attributes:
        key: The trajectory.
        index: 0 if it was opened, forked or replayed, i after its i-th step from there.
        observation: What the agent sees now; None after a failure.
        outcome: Of a step (of a fork or a replay: of the step it stands after), else None.
        instruction: The task sentence where `index` is 0, else "".
        failure: If set, the trajectory is dead, and only `release` is legal.
    """

    key: int
    index: int
    observation: Observation | None
    outcome: Outcome | None = None
    instruction: str = ""
    failure: Failure | None = None


@dataclass(slots=True)
class Trace:
    """What a pool remembers of a trajectory; enough to play it again.

    Attributes:
        task: Its task.
        seed: Of its environment.
        actions: All actions since the task's start, those before a fork included.
        inherited: How many of them were played before the fork.
        checks: `reply_digest` of the replies since the task's start, as far as they are known.
        outstanding: Whether a request has no reply yet.
        over: Whether it ended or failed.
    """

    task: Task
    seed: int
    actions: list[str] = field(default_factory=list)
    inherited: int = 0
    checks: list[str] = field(default_factory=list)
    outstanding: bool = True
    over: bool = False

    @property
    def index(self) -> int:
        """Steps asked for since the trajectory was opened, forked or replayed."""
        return len(self.actions) - self.inherited


def raised(error: Exception, trace: Trace) -> Failure:
    """Returns the failure of a trajectory whose environment raised."""
    where = f"at step {len(trace.actions)}" if trace.actions else "when it was opened"
    return Failure("error", f"task {trace.task.id!r}, {where}: {type(error).__name__}: {error}")


def diverged(trace: Trace, number: int) -> Failure:
    """Returns the failure of a trajectory that, played again, went another way at its reply `number`."""
    return Failure(
        "diverged",
        f"task {trace.task.id!r}, seed {trace.seed}: played again, reply {number} is another one than "
        "before. The environment is not deterministic, or its data or code has changed.",
    )
