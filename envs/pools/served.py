"""Requests to environment servers and what their answers mean: retried, or begun again at another server."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from queue import Empty, Queue
from typing import get_args

from pydantic import ValidationError

from envs.base import EnvError, task_digest
from envs.pools.connection import Connection, Entry, Result, opening
from envs.pools.placement import Placement
from envs.pools.replaying import RecoveringPool, ReplayableTrajectory
from envs.pools.replies import Failure, Reason
from envs.wire.description import Description, Hello
from envs.wire.messages import TOKEN_VARIABLE, Fork, Opening, Played, Stepping, answers
from envs.wire.task_book import content

TRIES = 5
"""Times a trajectory is begun again for one request."""


class ServedPool(RecoveringPool):
    """The part of `RemotePool` that talks: it has each request answered, whatever becomes of the servers.

    Args:
        connections: To the servers.
        environment: What they have to play.
        client: Part of every session's name, so that clients do not meet.
        patience: Seconds after which a request that no server has answered has failed.
    """

    def __init__(
        self, connections: Sequence[Connection], environment: Description, client: str, patience: float
    ) -> None:
        super().__init__()
        self._connections, self._environment = connections, environment
        self._client, self._patience = client, patience
        self._placement: Placement[Connection] = Placement()
        self._results: Queue[Result | None] = Queue()

    def _leave(self, trajectory: ReplayableTrajectory) -> None:
        trajectory.place.closing.append(self._name(trajectory))
        self._placement.leave(trajectory.trace.task.id, trajectory.place)

    def _name(self, trajectory: ReplayableTrajectory) -> str:
        return f"{self._client}-{trajectory.serial}"

    def _ask(self, trajectory: ReplayableTrajectory, request: Opening | Fork | Stepping) -> None:
        trajectory.place.outbox.append(Entry(trajectory, trajectory.serial, request))

    def _place(self, trajectory: ReplayableTrajectory) -> None:
        """Has a trajectory begun, at a server that is up if there is one."""
        usable = [connection for connection in self._connections if not connection.refused]
        for wish in (
            lambda connection: connection.up and not connection.draining,
            lambda connection: connection.up,
        ):
            usable = [connection for connection in usable if wish(connection)] or usable
        if not usable:
            raise EnvError("; ".join(connection.refused for connection in self._connections))
        trace = trajectory.trace
        trajectory.place = self._placement.take(trace.task.id, usable)
        self._ask(trajectory, opening(trajectory, self._name(trajectory)))

    def _begin_again(self, trajectory: ReplayableTrajectory, why: str) -> None:
        """Has a trajectory begun again up to where it stands, its outstanding request included."""
        trajectory.tries += 1
        if trajectory.tries > TRIES:
            return self._fail(
                trajectory, Failure("lost", f"task {trajectory.trace.task.id!r}: begun {TRIES} times: {why}")
            )
        self._leave(trajectory)
        self._renumber(trajectory)
        self._place(trajectory)

    def _turn(self, timeout: float | None) -> None:
        """Makes the calls that can be made, and takes results until there is none, or `timeout` is over."""
        timeout = 0.5 if timeout is None else min(0.5, timeout)  # servers that are down are asked again
        now = time.monotonic()
        for connection in self._connections:
            if not connection.busy and not connection.refused and now >= connection.retry_at:
                connection.go_on(now, self._current)
        soon = min(
            (
                connection.retry_at - now
                for connection in self._connections
                if not connection.busy and not connection.refused
            ),
            default=1,
        )
        try:
            result = self._results.get(timeout=min(timeout, soon) if soon > 0 else timeout)
            while True:
                if result is None:
                    self._woken = True
                else:
                    result.connection.busy = False
                    self._take(result)
                result = self._results.get_nowait()
        except Empty:
            pass
        self._relocate()

    def _current(self, entry: Entry) -> bool:
        """Whether a request is still wanted."""
        return self._of_serial.get(entry.serial) is entry.trajectory and entry.trajectory.doom is None

    def _relocate(self) -> None:
        """Moves the requests of servers that are down to others; gives up those that have waited too long."""
        now, others = time.monotonic(), any(connection.up for connection in self._connections)
        for connection in self._connections:
            if connection.up or not connection.outbox:
                continue
            entries, connection.outbox = connection.outbox, []
            for entry in filter(self._current, entries):
                if now - entry.trajectory.since > self._patience:
                    fault = connection.refused or connection.fault
                    message = (
                        f"no environment server answered for {self._patience:g} s "
                        f"({connection.url}: {fault})."
                    )
                    self._fail(entry.trajectory, Failure("lost", message))
                elif others or connection.refused:
                    entry.trajectory.tries = 0
                    self._begin_again(entry.trajectory, connection.refused or connection.fault)
                else:
                    connection.outbox.append(entry)

    def _take(self, result: Result) -> None:
        connection, status = result.connection, result.status
        connection.tried = True
        if status == 200:
            try:
                return self._read(result)
            except ValidationError as error:
                fault = error.errors(include_url=False, include_input=False)[0]
                where = ".".join(map(str, fault["loc"])) or "the answer"
                return self._refuse(
                    result, f"answers what no environment server does ({where}: {fault['msg']})"
                )
        connection.outbox[:0] = result.call.entries
        if status == 0 or status >= 500:
            self.restarts += connection.up
            connection.down(result.fault or f"status {status}: {_detail(result)}", time.monotonic())
        elif status == 412:
            connection.down("plays another environment", 0.0)  # asked at once what it plays, then refused
        elif status in (408, 429):
            connection.retry_at = time.monotonic() + 1.0
        elif status == 413 and len(result.call.entries) > 1:
            connection.batch = len(result.call.entries) // 2
        elif status == 413 and result.call.entries:
            entry = connection.outbox.pop(0)
            if self._current(entry):
                message = f"{connection.url}: one request is too large: {_detail(result)}"
                self._fail(entry.trajectory, Failure("refused", message))
        elif status in (401, 403):
            self._refuse(
                result, f"does not take the token: set {TOKEN_VARIABLE} to the one it was started with"
            )
        else:
            self._refuse(result, f"answers {result.call.path} with status {status}: {_detail(result)}")

    def _read(self, result: Result) -> None:
        """Reads an answer of status 200.

        Raises:
            ValidationError: it is none.
        """
        connection, call = result.connection, result.call
        if call.path == "/v1/environment":
            hello = Hello.model_validate_json(result.body)
            found = self._environment.differences(hello.environment)
            if found:
                return self._refuse(result, f"plays another environment: {'; '.join(found)}")
            connection.back(hello)
        elif call.path == "/v1/play":
            played = answers.validate_json(result.body).played
            asked = [(e.request.session, e.request.position) for e in call.entries]
            if asked != [(p.session, p.position) for p in played]:
                return self._refuse(result, "answers other requests than it was asked")
            for entry, one in zip(call.entries, played, strict=True):
                if self._current(entry):
                    self._settle(connection, entry, one)

    def _settle(self, connection: Connection, entry: Entry, played: Played) -> None:
        """Takes the answer to one request."""
        trajectory, trouble = entry.trajectory, played.trouble
        if trouble is None:
            observation = played.outcome.observation if played.outcome else played.observation
            if observation is None:
                connection.refused = f"environment server {connection.url} answers without an observation."
                return self._begin_again(trajectory, connection.refused)
            checks = played.checks
            self._arrived(
                entry.serial, played.position, observation, played.outcome, played.instruction, checks
            )
        elif trouble.reason in get_args(Reason):
            self._fail(trajectory, Failure(trouble.reason, trouble.message))  # type: ignore[arg-type]
        elif trouble.reason == "unknown_task":
            self._upload(connection, entry)
        elif trouble.reason in ("full", "draining"):
            self._wait(connection, trajectory, trouble.reason, trouble.message)
        else:
            self._begin_again(trajectory, trouble.message)

    def _upload(self, connection: Connection, entry: Entry) -> None:
        body = content(entry.trajectory.trace.task)
        if body is None:
            task = entry.trajectory.trace.task.id
            return self._fail(
                entry.trajectory, Failure("refused", f"{connection.url} does not have the task {task!r}.")
            )
        connection.uploads[task_digest(entry.trajectory.trace.task)] = body.model_dump_json().encode()
        connection.outbox.append(entry)

    def _wait(
        self, connection: Connection, trajectory: ReplayableTrajectory, reason: str, message: str
    ) -> None:
        """Tries another server, or this one later."""
        if time.monotonic() - trajectory.since > self._patience:
            return self._fail(trajectory, Failure("refused", f"{connection.url}: {message}"))
        if reason == "draining":
            connection.draining = True
        else:
            connection.full_until = time.monotonic() + 0.5
        trajectory.tries = 0
        self._begin_again(trajectory, message)

    def _refuse(self, result: Result, why: str) -> None:
        """Uses a server no more; its trajectories go to others."""
        connection = result.connection
        connection.up, connection.refused = False, f"environment server {connection.url} {why}."
        connection.outbox[:0] = [e for e in result.call.entries if e not in connection.outbox]
        if all(other.refused for other in self._connections):
            raise EnvError(" ".join(other.refused for other in self._connections))
        if self._traces:
            warnings.warn(f"{connection.refused} It is used no more.", stacklevel=2)


def _detail(result: Result) -> str:
    return result.body[:200].decode(errors="replace")
