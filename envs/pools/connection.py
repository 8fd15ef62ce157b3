"""The connection to one environment server: the thread that talks to it, and its state."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from queue import Queue
from threading import Thread
from typing import Any

import httpx
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_exponential

from envs.base import EnvError, task_digest
from envs.pools.replaying import ReplayableTrajectory
from envs.wire.description import Hello
from envs.wire.messages import HEADER, Batch, Fork, Opening, Stepping, TaskName

CONNECT_SECONDS = 3.0
LARGEST_BATCH = 256
CLOSED_AT_ONCE = 2048
ATTEMPTS = 3
"""Times a call is made before its server counts as down; all calls can be repeated."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A request for a server, and the trajectory it is for (with the serial it then had)."""

    trajectory: ReplayableTrajectory
    serial: int
    request: Opening | Fork | Stepping


@dataclass(frozen=True, slots=True)
class Call:
    """One HTTP request: `entries` are those of a batch, in the order of their answers."""

    path: str
    body: bytes | None = None
    entries: tuple[Entry, ...] = ()


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a call: a status and a body, or the fault of a server that cannot be reached."""

    connection: Connection
    call: Call
    status: int
    body: bytes
    fault: str = ""


@dataclass(eq=False)
class Connection:
    """A server.

    Attributes:
        url: Its base.
        outbox: Requests not sent yet, or to be sent again.
        closing: Sessions to close with the next batch.
        uploads: Tasks to upload before that, as JSON, by digest.
        batch: Most requests sent at once.
        body: Most bytes of an upload.
        up: Whether it can be reached and plays what is wanted.
        tried: Whether it has been asked.
        draining: Whether it takes no new sessions.
        refused: Why it is not to be used any more.
        fault: Why it is down.
        busy: Whether a call is under way; there is one at a time.
        retry_at: When it may be called again (`time.monotonic`).
        full_until: Until then, nothing is opened there.
        pause: Seconds between the next two tries.
    """

    url: str
    outbox: list[Entry] = field(default_factory=list)
    closing: list[str] = field(default_factory=list)
    uploads: dict[str, bytes] = field(default_factory=dict)
    batch: int = LARGEST_BATCH
    body: int = 2**20
    up: bool = False
    tried: bool = False
    draining: bool = False
    refused: str = ""
    fault: str = ""
    busy: bool = False
    retry_at: float = 0.0
    full_until: float = 0.0
    pause: float = 0.1
    _calls: Queue[Call | None] = field(default_factory=Queue)
    _thread: Thread | None = None

    def start(
        self, results: Queue[Result | None], fingerprint: str, token: str | None, timeout: float
    ) -> None:
        """Starts the thread; every call puts one `Result`."""
        headers = {HEADER: fingerprint, "Content-Type": "application/json"}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        try:
            client = httpx.Client(
                base_url=self.url,
                headers=headers,
                timeout=httpx.Timeout(timeout, connect=min(CONNECT_SECONDS, timeout)),
                limits=httpx.Limits(keepalive_expiry=30.0),
                verify=ssl.create_default_context() if self.url.startswith("https:") else False,
                trust_env=False,  # environment servers are near; a proxy for the web is not meant
            )
        except httpx.InvalidURL as error:
            raise EnvError(f"environment server {self.url!r}: this is no address: {error}") from error
        arguments = (client, results)
        self._thread = Thread(target=self._talk, args=arguments, name=f"connection {self.url}", daemon=True)
        self._thread.start()

    def go_on(self, now: float, wanted: Callable[[Entry], bool]) -> None:
        """Makes the next call, if there is one to make; only when not `busy`.

        Args:
            now: `time.monotonic`.
            wanted: Whether a request is still to be made.
        """
        if not self.up:
            return self._make(Call("/v1/environment"))
        if self.uploads:
            return self._make(Call("/v1/tasks", self._upload()))
        if now < self.full_until:
            due = [e for e in self.outbox if not isinstance(e.request, Opening)]
        else:
            due = self.outbox
        taken = {id(entry) for entry in due[: self.batch]}
        entries = [e for e in due[: self.batch] if wanted(e)]
        self.outbox = [e for e in self.outbox if id(e) not in taken]
        if entries or len(self.closing) >= self.batch:
            self._make(self._batch(entries))

    def _make(self, call: Call) -> None:
        self.busy = True
        self._calls.put(call)

    def _upload(self) -> bytes:
        """Takes as many tasks as fit into one request, at least one."""
        bodies, size = [], 0
        while self.uploads and (not bodies or size < self.body // 2):
            bodies.append(self.uploads.pop(next(iter(self.uploads))))
            size += len(bodies[-1])
        return b'{"games": [' + b",".join(bodies) + b"]}"

    def _batch(self, entries: Sequence[Entry]) -> Call:
        """A batch of these and of what is to be closed; its entries are in the order of their answers."""
        kinds = [[e for e in entries if isinstance(e.request, kind)] for kind in (Opening, Fork, Stepping)]
        requests = ([e.request for e in kind] for kind in kinds)
        closing, self.closing = self.closing[:CLOSED_AT_ONCE], self.closing[CLOSED_AT_ONCE:]
        named = dict(zip(("open", "fork", "step"), requests, strict=True), close=closing)
        batch = Batch.model_construct(**named)  # made of checked parts
        return Call("/v1/play", batch.model_dump_json().encode(), tuple(e for kind in kinds for e in kind))

    def stop(self) -> None:
        """Ends the thread after the calls made; closes what is to be closed."""
        if self.up and self.closing:
            self._calls.put(self._batch([]))
        self.closing = []
        self._calls.put(None)

    def join(self, timeout: float) -> None:
        """Waits for the thread's end."""
        if self._thread is not None:
            self._thread.join(timeout)

    def down(self, fault: str, now: float) -> None:
        """Notes that it cannot be reached, and that the next try is after a pause, each longer."""
        self.up, self.draining, self.fault = False, False, fault
        self.retry_at = now + self.pause
        self.pause = min(2.0, 2 * self.pause)

    def back(self, hello: Hello) -> None:
        """Notes that it can be reached."""
        self.up, self.fault, self.pause = True, "", 0.1
        self.batch, self.body = min(LARGEST_BATCH, hello.batch), hello.body

    def _talk(self, client: httpx.Client, results: Queue[Result | None]) -> None:
        with client:
            while (call := self._calls.get()) is not None:
                results.put(self._fetch(client, call))

    def _fetch(self, client: httpx.Client, call: Call) -> Result:
        # Only what a repetition may cure is repeated here, quickly; the pool's patience is longer.
        again: Any = Retrying(
            stop=stop_after_attempt(ATTEMPTS),
            wait=wait_exponential(0.05, max=0.5),
            retry=retry_if_exception_type(httpx.TransportError),
            reraise=True,
        )
        try:
            response = again(
                client.request, "GET" if call.body is None else "POST", call.path, content=call.body
            )
        except (httpx.TransportError, httpx.DecodingError) as error:
            return Result(self, call, 0, b"", f"{type(error).__name__}: {error}")
        return Result(self, call, response.status_code, response.content)


def connections_to(urls: Sequence[str]) -> list[Connection]:
    """Returns a connection to each of these servers, not started yet.

    Raises:
        EnvError: There are none, one is named twice, or one is no address.
    """
    if not urls or len(set(urls)) < len(urls):
        raise EnvError(f"environment servers: expected different addresses, got {list(urls)}.")
    for url in urls:
        if not url.startswith(("http://", "https://")):
            raise EnvError(f"environment server {url!r}: an address is like http://127.0.0.1:8101.")
    return [Connection(url.rstrip("/")) for url in urls]


def opening(trajectory: ReplayableTrajectory, session: str) -> Opening:
    """Returns the request that begins a trajectory, or begins it again to where it stands."""
    trace = trajectory.trace
    return Opening(
        session=session,
        task=TaskName(id=trace.task.id, digest=task_digest(trace.task)),
        seed=trace.seed,
        actions=list(trace.actions),
        checks=list(trace.checks),
    )
