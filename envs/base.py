"""The contract between an environment and everything that plays it.

A *task* is one problem instance. An `Env` object plays one trajectory at a time:
`reset` starts it, `step` moves it, and after a step that ended it only `reset` is legal.
Environments are deterministic given (task, seed, actions) and never touch global random state.
"""

from __future__ import annotations

import hashlib
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from configs.errors import UserError


class EnvError(UserError, RuntimeError):
    """The environment was used against its contract, or its data is broken."""


@runtime_checkable
class Task(Protocol):
    """One problem instance, light enough to keep thousands in memory."""

    @property
    def id(self) -> str:
        """Unique within the task set, stable between runs."""

    @property
    def family(self) -> str:
        """Kind of task, the unit of evaluation tables (ALFWorld: `pick_clean_then_place_in_recep`, ...)."""

    @property
    def split(self) -> str:
        """Split the task belongs to (`train`, `valid_seen`, ...)."""


def task_digest(task: Task) -> str:
    """Returns a digest of a task's id and of all that decides how it plays.

    What that is, the task says: by a property `digest` of bytes, else by its `repr`, which for a dataclass
    are its fields. Of a task that has neither, id, family and split count, and no change of content is seen.
    """
    own = getattr(task, "digest", None)
    if isinstance(own, bytes):
        told = repr((task.id, own.hex()))
    elif type(task).__repr__ is not object.__repr__:
        told = repr(repr(task))
    else:
        told = repr((task.id, task.family, task.split))
    return hashlib.blake2b(told.encode(), digest_size=12).hexdigest()


@dataclass(frozen=True, slots=True)
class Observation:
    """What the agent sees before it acts.

    Attributes:
        text: The observation exactly as the environment prints it.
        anchor: The environment's key for "the same place in the same situation"; rows of one
            group with equal anchors are peers of step-level credit methods.
        admissible: Commands that would be accepted now, in the environment's own order. What stands between
            `<` and `>` is to be filled in: `search[<your query>]` stands for every search.
    """

    text: str
    anchor: str
    admissible: tuple[str, ...]

    def admits(self, action: str) -> bool:
        """Whether an action is one of `admissible`, or one of them filled in."""
        return action in self.admissible or any(_fills(form, action) for form in self.admissible)


_BLANK = re.compile(r"<[^<>]+>")


def fill(form: str, text: str) -> str:
    """Returns an admissible command with `text` in its blank, if it has one."""
    return _BLANK.sub(lambda _: text, form, count=1)


def _fills(form: str, action: str) -> bool:
    blank = _BLANK.search(form)
    if blank is None:
        return False
    before, after = form[: blank.start()], form[blank.end() :]
    longer = len(action) > len(before) + len(after)
    return longer and action.startswith(before) and action.endswith(after)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of one step.

    Attributes:
        observation: What the agent sees next (also after the last step).
        reward: Scalar reward of this step, unscaled (ALFWorld: 1.0 on the winning step, else 0.0).
        terminated: The task itself ended (won, bought, ...).
        truncated: The step limit ended the trajectory.
        success: The task is solved. Never inferred from `terminated`.
        score: Task score in [0, 1] (ALFWorld: 1.0 iff won).
    """

    observation: Observation
    reward: float
    terminated: bool
    truncated: bool
    success: bool
    score: float

    @property
    def done(self) -> bool:
        """Whether the trajectory is over, for whatever reason."""
        return self.terminated or self.truncated


def reply_digest(observation: Observation, outcome: Outcome | None) -> str:
    """Returns a digest of all that `reset` (no outcome) or `step` returned; the same in any process."""
    told = (observation.text, observation.anchor, *observation.admissible)
    if outcome is not None:
        ends = outcome.terminated, outcome.truncated, outcome.success
        told += (repr((outcome.reward, outcome.score, *ends)),)
    return hashlib.blake2b("\0".join(told).encode(errors="surrogatepass"), digest_size=8).hexdigest()


class Env(ABC):
    """One environment instance.

    `instruction` holds the task sentence after `reset` ("put a clean mug in cabinet", without the
    observation around it), so that prompts can repeat it when history is trimmed.
    """

    instruction: str = ""

    @abstractmethod
    def reset(self, task: Task, seed: int = 0) -> Observation:
        """Starts `task` from its initial state."""

    @abstractmethod
    def step(self, action: str) -> Outcome:
        """Plays one command. Any string is legal; what the env does not accept costs a step.

        Raises:
            EnvError: before the first `reset`, or after a step that ended the trajectory.
        """

    @abstractmethod
    def snapshot(self) -> Any:
        """Returns the state as an opaque, immutable value; later steps do not change it."""

    @abstractmethod
    def restore(self, snapshot: Any) -> Observation:
        """Goes back to `snapshot` and returns the observation that was current there."""

    def close(self) -> None:  # noqa: B027 (most environments have nothing to release)
        """Releases resources; idempotent."""
