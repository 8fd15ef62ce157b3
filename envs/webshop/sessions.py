"""Trajectories held open for others, as a server does: closed explicitly, or dropped when nobody comes back.

The published server keeps every session it ever saw, and grows until it is killed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from threading import RLock

from envs.base import Env, EnvError, Observation, Outcome, Task


@dataclass
class _Session:
    env: Env
    used: float


class SessionTable:
    """At most `limit` environments, by name; safe to use from several threads.

    Args:
        make_env: Makes an environment for a new session.
        limit: Sessions open at once.
        idle_seconds: Time without a step after which a session may be dropped.
        clock: Seconds from any start; monotonic.

    Raises:
        EnvError: a limit that lets nothing in.
    """

    def __init__(
        self,
        make_env: Callable[[], Env],
        *,
        limit: int = 1024,
        idle_seconds: float = 600.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if limit < 1 or not idle_seconds > 0:
            raise EnvError(
                "SessionTable: limit must be at least 1 and idle_seconds positive, "
                f"got {limit} and {idle_seconds}."
            )
        self._make_env, self._limit, self._idle, self._clock = make_env, limit, idle_seconds, clock
        self._sessions: dict[str, _Session] = {}
        self._names = count()
        self._lock = RLock()

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, task: Task, seed: int = 0) -> tuple[str, Observation]:
        """Starts a task in a new session; returns its name and the first observation.

        Raises:
            EnvError: the table is full of sessions in use, or the environment refuses the task.
        """
        with self._lock:
            if len(self._sessions) >= self._limit:
                self.expire()
            if len(self._sessions) >= self._limit:
                raise EnvError(
                    f"{self._limit} sessions are open and none has been idle for {self._idle:g} s: "
                    "close some, or raise the limit."
                )
            env = self._make_env()
            observation = env.reset(task, seed)
            name = f"s{next(self._names)}"
            self._sessions[name] = _Session(env, self._clock())
            return name, observation

    def step(self, name: str, action: str) -> Outcome:
        """Plays an action in a session.

        Raises:
            EnvError: no such session (any more), or its trajectory is over.
        """
        with self._lock:
            session = self._sessions.get(name)
            if session is None:
                raise EnvError(
                    f"There is no session {name!r}: it was closed or dropped as idle. Open another."
                )
            session.used = self._clock()
            return session.env.step(action)

    def close(self, name: str) -> None:
        """Closes a session; nothing happens if it is gone already."""
        with self._lock:
            session = self._sessions.pop(name, None)
            if session is not None:
                session.env.close()

    def expire(self) -> list[str]:
        """Closes the sessions that have been idle for too long; returns their names."""
        with self._lock:
            oldest = self._clock() - self._idle
            idle = [name for name, session in self._sessions.items() if session.used < oldest]
            for name in idle:
                self.close(name)
            return idle
