"""Any Gymnasium environment as an `Env`, for groups of trajectories.

    env = FromGymnasium(lambda: gymnasium.make("Taxi-v4"), Reading(success=…, text=…), 50, commands={…})
    env.reset(GymTask("taxi/0", "taxi", "train", seed=0))

docs/environments.md has a whole one.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import gymnasium

from envs.base import Env, EnvError, Observation, Outcome, reply_digest

TRIALS = 3
"""How many deep copies of an instance are played one step along with the original, to see that they agree."""


@dataclass(frozen=True, slots=True)
class GymTask:
    """A task of a Gymnasium environment: what its `reset` is given.

    Attributes:
        seed: Decides the instance, so that all trajectories of a group start alike.
        options: Options of `reset`, as pairs.
    """

    id: str
    family: str
    split: str
    seed: int
    options: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Seen:
    """What a Gymnasium environment returned last; after `reset`, with a reward of 0."""

    observation: Any
    info: Mapping[str, Any]
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False


Key = str | Callable[[Seen], Any]
"""Where to read a value: a key of `info`, or a function of all that was returned."""


def itself(observation: Any) -> str:
    """Reads an observation that is a text already."""
    return observation


@dataclass(frozen=True)
class Reading:
    """How to read what a Gymnasium environment returns.

    Attributes:
        success: Whether the task is solved. "Terminated" does not say that, so there is no default.
        score: In [0, 1]; None: 1 for a success.
        instruction: The task in a sentence, after `reset`; None: the first observation.
        admissible: Commands that would be accepted now; None: those of `commands`, if these are given.
        anchor: Key of "same place, same situation"; None: the text of the observation.
        text: Turns an observation that is no text into one.
    """

    success: Key
    score: Key | None = None
    instruction: Key | None = None
    admissible: Key | None = None
    anchor: Key | None = None
    text: Callable[[Any], str] = itself


@dataclass(frozen=True)
class Moment:
    """A snapshot: how a trajectory got where it is and, with deep copies, the environment as it is there.

    Attributes:
        digests: Of what `reset` and every action led to.
        copied: The environment and what it returned last, or None.
    """

    task: GymTask
    instruction: str
    actions: tuple[str, ...]
    digests: tuple[str, ...]
    observation: Observation
    over: bool
    copied: tuple[gymnasium.Env, Seen] | None = None


class FromGymnasium(Env):
    """A Gymnasium environment with our contract.

    The seed of a task decides its instance; the seed of `reset` is not used. A step that terminates and
    truncates has terminated, and so has one that solves the task in the very step that truncates. Otherwise
    the two stay as the environment says.

    `snapshots` says how to go back. "replay" resets with the task's seed and plays the actions again; every
    outcome on the way has to repeat. "deepcopy" copies the environment; the first copies of an instance are
    played one step along with the original, and have to do the same. "replay" takes time and needs a
    deterministic environment, "deepcopy" one that can be copied.

    Args:
        make: Makes the environment.
        reading: How to read it.
        max_steps: Steps after which a trajectory is truncated, if it lasts that long.
        commands: Actions of the environment by the commands that mean them; any other string costs a step
            and changes nothing. None: actions are strings, all of them accepted.
        snapshots: See above.

    Raises:
        EnvError: an option is out of range.
    """

    def __init__(
        self,
        make: Callable[[], gymnasium.Env],
        reading: Reading,
        max_steps: int,
        *,
        commands: Mapping[str, Any] | None = None,
        snapshots: Literal["replay", "deepcopy"] = "replay",
    ) -> None:
        if max_steps < 1 or snapshots not in ("replay", "deepcopy"):
            raise EnvError(
                "FromGymnasium: max_steps must be at least 1 and snapshots replay or deepcopy, got "
                f"{max_steps} and {snapshots!r}."
            )
        self._reading, self._max_steps, self._commands = reading, max_steps, commands
        self._copies, self._trials = snapshots == "deepcopy", TRIALS
        self._env, self._twin = make(), None
        self._now: Moment | None = None
        self._seen = Seen(None, {})

    def reset(self, task: GymTask, seed: int = 0) -> Observation:
        """Starts a task.

        Raises:
            EnvError: what the environment returns cannot be read.
        """
        self._twin = None
        found = self._env.reset(seed=task.seed, options=dict(task.options) or None)
        self._seen = Seen(*_parts("reset", found, "observation, info"))
        observation = self._observe(self._seen)
        instruction = observation.text
        if self._reading.instruction is not None:
            instruction = str(self._read("instruction", self._seen))
        self.instruction = instruction
        self._now = Moment(task, instruction, (), (reply_digest(observation, None),), observation, over=False)
        return observation

    def step(self, action: str) -> Outcome:
        """Plays a command; see `Env.step`.

        Raises:
            EnvError: out of order, unreadable, or a copy made for a snapshot does something else.
        """
        if self._now is None or self._now.over:
            raise EnvError("FromGymnasium: step before reset, or after the end. Call reset first.")
        twin, self._twin = self._twin, None
        expected = None if twin is None else self._play(twin, action)[0]
        outcome, self._seen = self._play(self._env, action)
        if expected is not None and outcome != expected:
            raise EnvError(
                "FromGymnasium: a deep copy of the environment does not behave as the original "
                f"(task {self._now.task.id!r}, step {len(self._now.actions)}). Use snapshots='replay'."
            )
        now = self._now
        self._now = Moment(
            now.task,
            now.instruction,
            (*now.actions, action),
            (*now.digests, reply_digest(outcome.observation, outcome)),
            outcome.observation,
            outcome.done,
        )
        return outcome

    def snapshot(self) -> Moment:
        """See `Env.snapshot`.

        Raises:
            EnvError: before the first `reset`.
        """
        if self._now is None:
            raise EnvError("FromGymnasium: snapshot before reset. Call reset first.")
        if not self._copies:
            return self._now
        if self._trials and not self._now.over:
            self._trials -= 1
            self._twin = copy.deepcopy(self._env)
        return replace(self._now, copied=copy.deepcopy((self._env, self._seen)))

    def restore(self, snapshot: Moment) -> Observation:
        """See `Env.restore`.

        Raises:
            EnvError: it is no snapshot, or playing the actions again did not repeat what they led to.
        """
        if not isinstance(snapshot, Moment):
            raise EnvError(f"FromGymnasium: not one of its snapshots: {type(snapshot).__name__}.")
        self._twin = None
        if snapshot.copied is not None:
            self._env, self._seen = copy.deepcopy(snapshot.copied)
            self._now = replace(snapshot, copied=None)
        else:
            self._replay(snapshot)
        self.instruction = snapshot.instruction
        return snapshot.observation

    def close(self) -> None:
        """Closes the environment; idempotent."""
        self._env.close()

    def _replay(self, snapshot: Moment) -> None:
        for number, expected in enumerate(snapshot.digests):
            if number == 0:
                self.reset(snapshot.task)
            else:
                self.step(snapshot.actions[number - 1])
            if self._now.digests[-1] != expected:
                raise EnvError(
                    f"FromGymnasium: task {snapshot.task.id!r} does not repeat after {number} actions: "
                    "the environment depends on more than its seed and the actions, and cannot be replayed."
                )

    def _play(self, env: gymnasium.Env, action: str) -> tuple[Outcome, Seen]:
        """Plays an action in `env`, which stands where this trajectory does."""
        if self._commands is not None and action not in self._commands:
            seen = replace(self._seen, reward=0.0)
        else:
            meant = action if self._commands is None else self._commands[action]
            found = _parts("step", env.step(meant), "observation, reward, terminated, truncated, info")
            raw, reward, terminated, truncated, info = found
            seen = Seen(raw, info, float(reward), bool(terminated), bool(truncated))
        limit = len(self._now.actions) + 1 >= self._max_steps
        ended = seen.terminated or seen.truncated or limit
        success = bool(self._read("success", seen, absent=None if ended else False))
        score = float(success if self._reading.score is None else self._read("score", seen))
        terminated = seen.terminated or (success and ended)
        observation = self._observe(seen)
        return Outcome(observation, seen.reward, terminated, ended and not terminated, success, score), seen

    def _observe(self, seen: Seen) -> Observation:
        text = self._reading.text(seen.observation)
        if not isinstance(text, str):
            raise EnvError(
                f"FromGymnasium: an observation is a {type(text).__name__}, not a string. Give "
                "Reading(text=…), which makes a text of it."
            )
        admissible = tuple(self._commands or ())
        if self._reading.admissible is not None:
            admissible = tuple(self._read("admissible", seen))
        anchor = text if self._reading.anchor is None else str(self._read("anchor", seen))
        return Observation(text, anchor, admissible)

    def _read(self, what: str, seen: Seen, absent: Any = None) -> Any:
        """Reads something; `absent` stands for a key that is not there, unless it is None."""
        key = getattr(self._reading, what)
        if callable(key):
            return key(seen)
        if key in seen.info:
            return seen.info[key]
        if absent is not None:
            return absent
        raise EnvError(
            f"FromGymnasium: {what} is to be read from info[{key!r}], but there are only "
            f"{', '.join(map(repr, seen.info)) or 'no keys'}. Name another, or give a function."
        )


def _parts(method: str, found: Any, names: str) -> tuple[Any, ...]:
    """What a method returned, which must have these parts."""
    if not isinstance(found, tuple) or len(found) != names.count(",") + 1:
        got = f"{len(found)} values" if isinstance(found, tuple) else f"a {type(found).__name__}"
        raise EnvError(
            f"FromGymnasium: {method} gives {got}, Gymnasium's gives ({names}). An environment of the older "
            "gym needs a wrapper of its own first."
        )
    return found
