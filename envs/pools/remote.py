"""Trajectories on environment servers: balanced, retried, played again elsewhere where a server is lost."""

from __future__ import annotations

import secrets
import time
import warnings
from collections.abc import Sequence
from queue import Empty, Queue
from typing import get_args

from pydantic import ValidationError

from envs.base import EnvError
from envs.pools.connection import Connection, Entry, Result
from envs.pools.placement import Placement
from envs.pools.replaying import RecoveringPool, ReplayableTrajectory
from envs.pools.replies import Failure, Reason
from envs.wire.description import Description, Hello
from envs.wire.messages import TOKEN_VARIABLE, Fork, Opening, Played, Stepping, TaskName, answers
from envs.wire.task_book import content, task_digest

TRIES = 5
"""Times a trajectory is begun again for one request."""


class RemotePool(RecoveringPool):
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
        super().__init__()
        if not urls or len(set(urls)) < len(urls):
            raise EnvError(f"environment servers: expected different addresses, got {list(urls)}.")
        for url in urls:
            if not url.startswith(("http://", "https://")):
                raise EnvError(f"environment server {url!r}: an address is like http://127.0.0.1:8101.")
        self._environment, self._patience = environment, patience
        self._client = secrets.token_hex(8)
        self._router: Placement[Connection] = Placement()
        self._results: Queue[Result | None] = Queue()
        self._lines = [Connection(url.rstrip("/")) for url in urls]
        try:
            for line in self._lines:
                line.start(self._results, environment.fingerprint, token, timeout)
            self._connect()
        except BaseException:
            self.close()
            raise

    def _connect(self) -> None:
        """Waits until all servers have been tried and one is up."""
        until = time.monotonic() + self._patience
        while not (all(line.tried for line in self._lines) and any(line.up for line in self._lines)):
            if time.monotonic() > until:
                faults = "; ".join(f"{line.url}: {line.fault or 'no answer yet'}" for line in self._lines)
                raise EnvError(f"no environment server can be reached: {faults}. `run.py serve` starts one.")
            self._turn(0.1)
            for line in self._lines:
                if line.refused:
                    raise EnvError(line.refused)

    def _open(self, key: int) -> None:
        play = self._new_play(key)
        play.since = time.monotonic()
        self._place(play)

    def _step(self, key: int, action: str) -> None:
        play = self._of_key[key]
        play.since = time.monotonic()
        if play.doom is not None:
            return self._fail(play, play.doom)
        try:
            action.encode()
        except UnicodeEncodeError as error:
            return self._fail(play, Failure("error", f"the action {action!r} is no text: {error}"))
        name, position = self._name(play), len(play.trace.actions)
        self._ask(play, Stepping.model_construct(session=name, position=position, action=action))

    def _fork(self, key: int, source: int) -> None:
        parent, play = self._of_key[source], self._new_play(key)
        play.since, play.place = time.monotonic(), parent.place
        self._router.join(play.trace.task.id, play.place)
        position = len(play.trace.actions)
        self._ask(play, Fork(session=self._name(play), source=self._name(parent), position=position))

    def _release(self, key: int) -> None:
        play = self._forget(key)
        self._leave(play)

    def _leave(self, play: ReplayableTrajectory) -> None:
        play.place.closing.append(self._name(play))
        self._router.leave(play.trace.task.id, play.place)

    def _name(self, play: ReplayableTrajectory) -> str:
        return f"{self._client}-{play.serial}"

    def _ask(self, play: ReplayableTrajectory, request: Opening | Fork | Stepping) -> None:
        play.place.outbox.append(Entry(play, play.serial, request))

    def _place(self, play: ReplayableTrajectory) -> None:
        """Has a play begun, at a server that is up if there is one."""
        usable = [line for line in self._lines if not line.refused]
        for wish in (lambda line: line.up and not line.draining, lambda line: line.up):
            usable = [line for line in usable if wish(line)] or usable
        if not usable:
            raise EnvError("; ".join(line.refused for line in self._lines))
        trace = play.trace
        play.place = self._router.take(trace.task.id, usable)
        request = Opening(
            session=self._name(play),
            task=TaskName(id=trace.task.id, digest=task_digest(trace.task)),
            seed=trace.seed,
            actions=list(trace.actions),
            checks=list(trace.checks),
        )
        self._ask(play, request)

    def _begin_again(self, play: ReplayableTrajectory, why: str) -> None:
        """Has a play begun again to where it stands, its outstanding request included."""
        play.tries += 1
        if play.tries > TRIES:
            return self._fail(
                play, Failure("lost", f"task {play.trace.task.id!r}: begun {TRIES} times: {why}")
            )
        self._leave(play)
        self._renumber(play)
        self._place(play)

    def wake(self) -> None:
        """See `EnvPool.wake`."""
        self._results.put(None)

    def _turn(self, timeout: float | None) -> None:
        """Makes the calls that can be made, and takes results until there is none, or `timeout` is over."""
        timeout = 0.5 if timeout is None else min(0.5, timeout)  # servers that are down are asked again
        now = time.monotonic()
        for line in self._lines:
            if not line.busy and not line.refused and now >= line.retry_at:
                line.go_on(now, self._current)
        soon = min(
            (line.retry_at - now for line in self._lines if not line.busy and not line.refused), default=1
        )
        try:
            result = self._results.get(timeout=min(timeout, soon) if soon > 0 else timeout)
            while True:
                if result is None:
                    self._woken = True
                else:
                    result.line.busy = False
                    self._take(result)
                result = self._results.get_nowait()
        except Empty:
            pass
        self._relocate()

    def _current(self, entry: Entry) -> bool:
        """Whether a request is still wanted."""
        return self._of_serial.get(entry.serial) is entry.play and entry.play.doom is None

    def _relocate(self) -> None:
        """Moves the requests of servers that are down to others; gives up those that have waited too long."""
        now, others = time.monotonic(), any(line.up for line in self._lines)
        for line in self._lines:
            if line.up or not line.outbox:
                continue
            entries, line.outbox = line.outbox, []
            for entry in filter(self._current, entries):
                if now - entry.play.since > self._patience:
                    fault = line.refused or line.fault
                    message = (
                        f"no environment server answered for {self._patience:g} s ({line.url}: {fault})."
                    )
                    self._fail(entry.play, Failure("lost", message))
                elif others or line.refused:
                    entry.play.tries = 0
                    self._begin_again(entry.play, line.refused or line.fault)
                else:
                    line.outbox.append(entry)

    def _take(self, result: Result) -> None:
        line, status = result.line, result.status
        line.tried = True
        if status == 200:
            try:
                return self._read(result)
            except ValidationError as error:
                fault = error.errors(include_url=False, include_input=False)[0]
                where = ".".join(map(str, fault["loc"])) or "the answer"
                return self._refuse(
                    result, f"answers what no environment server does ({where}: {fault['msg']})"
                )
        line.outbox[:0] = result.call.entries
        if status == 0 or status >= 500:
            self.restarts += line.up
            line.down(result.fault or f"status {status}: {_detail(result)}", time.monotonic())
        elif status == 412:
            line.down("plays another environment", 0.0)  # asked at once what it plays, then refused
        elif status in (408, 429):
            line.retry_at = time.monotonic() + 1.0
        elif status == 413 and len(result.call.entries) > 1:
            line.batch = len(result.call.entries) // 2
        elif status == 413 and result.call.entries:
            entry = line.outbox.pop(0)
            if self._current(entry):
                message = f"{line.url}: one request is too large: {_detail(result)}"
                self._fail(entry.play, Failure("refused", message))
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
        line, call = result.line, result.call
        if call.path == "/v1/environment":
            hello = Hello.model_validate_json(result.body)
            found = self._environment.differences(hello.environment)
            if found:
                return self._refuse(result, f"plays another environment: {'; '.join(found)}")
            line.back(hello)
        elif call.path == "/v1/play":
            played = answers.validate_json(result.body).played
            asked = [(e.request.session, e.request.position) for e in call.entries]
            if asked != [(p.session, p.position) for p in played]:
                return self._refuse(result, "answers other requests than it was asked")
            for entry, one in zip(call.entries, played, strict=True):
                if self._current(entry):
                    self._settle(line, entry, one)

    def _settle(self, line: Connection, entry: Entry, played: Played) -> None:
        """Takes the answer to one request."""
        play, trouble = entry.play, played.trouble
        if trouble is None:
            observation = played.outcome.observation if played.outcome else played.observation
            if observation is None:
                line.refused = f"environment server {line.url} answers without an observation."
                return self._begin_again(play, line.refused)
            checks = played.checks
            self._arrived(
                entry.serial, played.position, observation, played.outcome, played.instruction, checks
            )
        elif trouble.reason in get_args(Reason):
            self._fail(play, Failure(trouble.reason, trouble.message))  # type: ignore[arg-type]
        elif trouble.reason == "unknown_task":
            self._upload(line, entry)
        elif trouble.reason in ("full", "draining"):
            self._wait(line, play, trouble.reason, trouble.message)
        else:
            self._begin_again(play, trouble.message)

    def _upload(self, line: Connection, entry: Entry) -> None:
        body = content(entry.play.trace.task)
        if body is None:
            task = entry.play.trace.task.id
            return self._fail(entry.play, Failure("refused", f"{line.url} does not have the task {task!r}."))
        line.uploads[task_digest(entry.play.trace.task)] = body.model_dump_json().encode()
        line.outbox.append(entry)

    def _wait(self, line: Connection, play: ReplayableTrajectory, reason: str, message: str) -> None:
        """Tries another server, or this one later."""
        if time.monotonic() - play.since > self._patience:
            return self._fail(play, Failure("refused", f"{line.url}: {message}"))
        if reason == "draining":
            line.draining = True
        else:
            line.full_until = time.monotonic() + 0.5
        play.tries = 0
        self._begin_again(play, message)

    def _refuse(self, result: Result, why: str) -> None:
        """Uses a server no more; its trajectories go to others."""
        line = result.line
        line.up, line.refused = False, f"environment server {line.url} {why}."
        line.outbox[:0] = [e for e in result.call.entries if e not in line.outbox]
        if all(other.refused for other in self._lines):
            raise EnvError(" ".join(other.refused for other in self._lines))
        if self._traces:
            warnings.warn(f"{line.refused} It is used no more.", stacklevel=2)

    def close(self) -> None:
        """See `EnvPool.close`; tells the servers, as far as they can be reached at once."""
        for key in list(self._traces):
            self.release(key)
        for line in self._lines:
            line.stop()
        for line in self._lines:
            line.join(2.0)


def _detail(result: Result) -> str:
    return result.body[:200].decode(errors="replace")
