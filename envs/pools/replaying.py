"""What pools whose workers or servers can be lost have in common: traces, and checks on replay."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from envs.base import Observation, Outcome, reply_digest
from envs.pools.pool import EnvPool
from envs.pools.replies import Failure, Reply, Trace, diverged


@dataclass(slots=True, eq=False)
class ReplayableTrajectory:
    """A trajectory as a back end knows it.

    Attributes:
        key: The caller's.
        serial: The back end's; a new one whenever the trajectory is begun again, so that a late reply to the
            old one is known as such.
        trace: What it is played again from.
        place: The worker or server it is at.
        tries: Requests of it that were lost in a row.
        since: When the outstanding request was made (`time.monotonic`).
        doom: Why its next request fails, if what was lost between two requests did not come back.
    """

    key: int
    serial: int
    trace: Trace
    place: Any = None
    tries: int = 0
    since: float = 0.0
    doom: Failure | None = None


class RecoveringPool(EnvPool):
    """An `EnvPool` that can begin a trajectory again and tells its replies from those to what was lost."""

    def __init__(self) -> None:
        super().__init__()
        self._numbers = count()
        self._of_key: dict[int, ReplayableTrajectory] = {}
        self._of_serial: dict[int, ReplayableTrajectory] = {}
        self._replies: dict[int, Reply] = {}
        self._woken = False

    def _new_trajectory(self, key: int) -> ReplayableTrajectory:
        trajectory = ReplayableTrajectory(key, next(self._numbers), self._traces[key])
        self._of_key[key] = self._of_serial[trajectory.serial] = trajectory
        return trajectory

    def _renumber(self, trajectory: ReplayableTrajectory) -> None:
        """Gives a trajectory that is begun again a new serial."""
        self._of_serial.pop(trajectory.serial, None)
        trajectory.serial = next(self._numbers)
        self._of_serial[trajectory.serial] = trajectory

    def _forget(self, key: int) -> ReplayableTrajectory:
        trajectory = self._of_key.pop(key)
        self._of_serial.pop(trajectory.serial, None)
        self._replies.pop(key, None)
        return trajectory

    def _arrived(
        self,
        serial: int,
        position: int,
        observation: Observation,
        outcome: Outcome | None,
        instruction: str,
        checks: Sequence[str] = (),
    ) -> None:
        """Takes what a back end says.

        Args:
            serial: Of the trajectory.
            position: Actions played since the task's start.
            observation: Where it stands.
            outcome: Of the last action.
            instruction: The task sentence, of an opening or a fork.
            checks: Of all replies up to this one, of an opening.
        """
        trajectory = self._of_serial.get(serial)
        if trajectory is None:
            return
        trace = trajectory.trace
        digests = checks or [*trace.checks[:position], reply_digest(observation, outcome)]
        for number, (was, now) in enumerate(zip(trace.checks, digests, strict=False)):
            if was != now:
                return self._fail(trajectory, diverged(trace, number))
        trace.checks += digests[len(trace.checks) :]
        # Otherwise this is a trajectory begun again that now stands where it stood.
        if trace.outstanding and trajectory.key not in self._replies and position == len(trace.actions):
            trajectory.tries = 0
            index = trace.index
            self._replies[trajectory.key] = Reply(
                trajectory.key, index, observation, outcome, "" if index else instruction
            )

    def _fail(self, trajectory: ReplayableTrajectory, failure: Failure) -> None:
        """Gives a trajectory up: at its outstanding request, or at the next."""
        trajectory.doom = failure
        if trajectory.trace.outstanding:
            self._replies[trajectory.key] = Reply(
                trajectory.key, trajectory.trace.index, None, failure=failure
            )

    def _ready(self, timeout: float | None) -> list[Reply]:
        until = None if timeout is None else time.monotonic() + timeout
        while not self._replies and self.outstanding:
            self._turn(None if until is None else max(0.0, until - time.monotonic()))
            if self._woken or (until is not None and time.monotonic() >= until):
                break
        self._woken = False
        replies = list(self._replies.values())
        self._replies.clear()
        return replies

    @abstractmethod
    def _turn(self, timeout: float | None) -> None:
        """Sends what has gathered and takes what arrives, for at most `timeout` seconds (None: no limit)."""
