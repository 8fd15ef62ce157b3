"""Plays trajectories on environment servers: balanced, retried, begun again where a server is lost."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence

from envs.base import EnvError
from envs.pools.connection import connections_to
from envs.pools.replies import Failure
from envs.pools.served import ServedPool
from envs.wire.description import Description
from envs.wire.messages import Fork, Stepping


class RemotePool(ServedPool):
    """Plays on servers that `run.py serve` starts.

    Requests gather until `ready` is called, and go to each server as one batch at a time. A request that is
    sent twice is played once, since it says to which position of its trajectory it leads. A server that
    cannot be reached is tried again; until then, other servers begin its trajectories again.

    Args:
        urls: The servers (`http://127.0.0.1:8101`).
        environment: What they have to play; a server that plays anything else is refused.
        token: Sent to each.
        timeout: Seconds to wait for a server's answer to one call.
        patience: Seconds after which a request that no server has answered has failed.

    Raises:
        EnvError: a server plays another environment, does not take the token, or is no environment server;
            or none can be reached.
    """

    def __init__(
        self,
        urls: Sequence[str],
        environment: Description,
        *,
        token: str | None = None,
        timeout: float = 10.0,
        patience: float = 120.0,
    ) -> None:
        super().__init__(connections_to(urls), environment, secrets.token_hex(8), patience)
        try:
            for connection in self._connections:
                connection.start(self._results, environment.fingerprint, token, timeout)
            self._connect()
        except BaseException:
            self.close()
            raise

    def _connect(self) -> None:
        """Waits until all servers have been tried and one is up."""
        until = time.monotonic() + self._patience
        while not (
            all(connection.tried for connection in self._connections)
            and any(connection.up for connection in self._connections)
        ):
            if time.monotonic() > until:
                faults = "; ".join(
                    f"{connection.url}: {connection.fault or 'no answer yet'}"
                    for connection in self._connections
                )
                raise EnvError(f"no environment server can be reached: {faults}. `run.py serve` starts one.")
            self._turn(0.1)
            for connection in self._connections:
                if connection.refused:
                    raise EnvError(connection.refused)

    def _open(self, key: int) -> None:
        trajectory = self._new_trajectory(key)
        trajectory.since = time.monotonic()
        self._place(trajectory)

    def _step(self, key: int, action: str) -> None:
        trajectory = self._of_key[key]
        trajectory.since = time.monotonic()
        if trajectory.doom is not None:
            return self._fail(trajectory, trajectory.doom)
        try:
            action.encode()
        except UnicodeEncodeError as error:
            return self._fail(trajectory, Failure("error", f"the action {action!r} is no text: {error}"))
        name, position = self._name(trajectory), len(trajectory.trace.actions)
        self._ask(trajectory, Stepping.model_construct(session=name, position=position, action=action))

    def _fork(self, key: int, source: int) -> None:
        parent, trajectory = self._of_key[source], self._new_trajectory(key)
        trajectory.since, trajectory.place = time.monotonic(), parent.place
        self._placement.join(trajectory.trace.task.id, trajectory.place)
        position = len(trajectory.trace.actions)
        self._ask(
            trajectory, Fork(session=self._name(trajectory), source=self._name(parent), position=position)
        )

    def _release(self, key: int) -> None:
        trajectory = self._forget(key)
        self._leave(trajectory)

    def wake(self) -> None:
        """See `EnvPool.wake`."""
        self._results.put(None)

    def close(self) -> None:
        """See `EnvPool.close`; tells the servers, as far as they can be reached at once."""
        for key in list(self._traces):
            self.release(key)
        for connection in self._connections:
            connection.stop()
        for connection in self._connections:
            connection.join(2.0)
