"""The connection to one policy server: one thread sends requests, another fetches responses."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from queue import Queue
from threading import Condition, Thread

from agent.client.http_calls import PATIENCE, HttpCalls, Lost, Refused
from agent.policy import Sampling
from agent.wire.messages import BATCH, Ask, Collect, Collected, Done, Hello, Release, Response, Start, Started

WAIT = 10.0
"""Longest that a server holds an answer back (s)."""

RELEASE_SECONDS = 3.0
"""Longest that it is tried to tell a server what is no longer needed."""


@dataclass(frozen=True, slots=True)
class Arrived:
    """Responses, or faults."""

    connection: Connection
    responses: list[Response]


@dataclass(frozen=True, slots=True)
class Forgotten:
    """The server knows nothing any more of the requests of these numbers, nor of their conversations."""

    connection: Connection
    numbers: frozenset[int]


@dataclass(frozen=True, slots=True)
class Down:
    """The server cannot be used, and why."""

    connection: Connection
    why: str


Event = Arrived | Forgotten | Down


class Connection:
    """A server in use, until it is `Down` or closed.

    Args:
        link: Calls it.
        hello: What it said it is.
        events: What happens there is put here.

    Attributes:
        load: Conversations placed there; kept by the owner.
        whole: Whether answers may wait until all requests in flight have ended.
    """

    def __init__(self, calls: HttpCalls, hello: Hello, events: Queue[Event]) -> None:
        self.calls, self.hello = calls, hello
        self.load, self.whole = 0, False
        self._events = events
        self._client = secrets.token_hex(8)
        self._changed = Condition()  # over all below
        self._outbox: list[tuple[str, Sampling, Ask]] = []
        self._releases: list[int] = []
        self._flying: set[int] = set()  # numbers of requests that the server has taken
        self._settled: set[int] = set()  # released or answered while the sending thread waits for its reply
        self._record = ""
        self._ack = 0
        self._over = False
        self._threads = [
            Thread(target=self._guarded, args=(work,), name=f"{name} {calls.url}", daemon=True)
            for name, work in (("send", self._send), ("fetch", self._fetch))
        ]
        for thread in self._threads:
            thread.start()

    @property
    def url(self) -> str:
        """Where it is."""
        return self.calls.url

    def ask(self, label: str, sampling: Sampling, asks: Sequence[Ask]) -> None:
        """Has requests sent, to be answered with the weights of transfer `label`."""
        with self._changed:
            self._outbox += [(label, sampling, ask) for ask in asks]
            self._changed.notify_all()

    def release(self, conversation: int, number: int | None) -> None:
        """Has a conversation forgotten, with its request `number` if one is in flight."""
        with self._changed:
            if number is not None:
                kept = [entry for entry in self._outbox if entry[2].number != number]
                if len(kept) == len(self._outbox) and number not in self._flying:
                    self._settled.add(number)  # it is just being sent
                self._outbox = kept
                self._flying.discard(number)
            self._releases.append(conversation)
            self._changed.notify_all()

    def close(self, wait: float = 0.0) -> None:
        """Ends both threads, and waits for that a while."""
        with self._changed:
            self._over = True
            self._changed.notify_all()
        self.calls.stop()
        for thread in self._threads if wait else ():
            thread.join(wait)
        if not any(thread.is_alive() for thread in self._threads):
            self.calls.close()

    def _guarded(self, work: object) -> None:
        try:
            work()  # type: ignore[operator]
        except (Lost, Refused) as error:
            self._events.put(Down(self, str(error)))
        except Exception as error:  # never leave the run waiting for a thread that has died
            self._events.put(Down(self, f"{type(error).__name__}: {error}"))

    def _send(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._over or self._outbox or self._releases)
                over = self._over
                entries, releases = self._due()
            if over and not releases:
                return
            if not entries:
                message = Release(client=self._client, conversations=releases)
                with suppress(Lost, Refused):  # then the server is gone, or forgets it by itself in time
                    self.calls.post("/v1/release", message, Done, within=RELEASE_SECONDS)
                continue
            label, sampling, _ = entries[0]
            asks = [ask for _, _, ask in entries]
            start = Start.model_construct(  # of checked parts
                client=self._client,
                label=label,
                temperature=sampling.temperature,
                top=sampling.top,
                release=releases,
                ask=asks,
            )
            record = self.calls.post("/v1/start", start, Started).record
            self._taken(record, {ask.number for ask in asks})

    def _due(self) -> tuple[list[tuple[str, Sampling, Ask]], list[int]]:
        """Takes out what can be sent in one message."""
        if self._over:
            self._outbox = []
        kind = self._outbox[0][:2] if self._outbox else None
        entries = []
        while self._outbox and self._outbox[0][:2] == kind and len(entries) < BATCH:
            entries.append(self._outbox.pop(0))
        releases, self._releases = self._releases[: 32 * BATCH], self._releases[32 * BATCH :]
        return entries, releases

    def _taken(self, record: str, numbers: set[int]) -> None:
        """Notes that the server has taken requests."""
        with self._changed:
            if record != self._record:
                self._forget()
                self._record, self._ack = record, 0
            self._flying |= numbers - self._settled
            self._settled -= numbers
            self._changed.notify_all()

    def _forget(self) -> None:
        """Tells that what was in flight never comes."""
        if self._flying:
            self._events.put(Forgotten(self, frozenset(self._flying)))
        self._flying = set()

    def _fetch(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._over or self._flying)
                if self._over:
                    return
                enough = len(self._flying) if self.whole else 1
                record, ack = self._record, self._ack
            message = Collect(client=self._client, record=record, ack=ack, enough=enough, wait=WAIT)
            try:
                collected = self.calls.post("/v1/collect", message, Collected, patience=WAIT + PATIENCE)
            except Refused as error:
                if error.status != 404:
                    raise
                with self._changed:
                    if record == self._record:
                        self._forget()
                continue
            self._arrived(record, collected.responses)

    def _arrived(self, record: str, responses: list[Response]) -> None:
        with self._changed:
            new = [r for r in responses if r.delivery > self._ack] if record == self._record else []
            if new:
                self._ack = new[-1].delivery
                numbers = {response.number for response in new}
                self._settled |= numbers - self._flying
                self._flying -= numbers
        if new:
            self._events.put(Arrived(self, new))
