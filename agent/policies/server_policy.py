"""Generation on policy servers (`run.py serve-policy`), on accelerators or nodes of their own.

A conversation stays with one server, which keeps its keys and values. Its token ids are kept here too, and a
request carries its seed; so what a server takes with it when it dies is asked for again elsewhere, whole, and
comes out the same (up to the last bits of arithmetic).
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count
from queue import Empty

import torch

from agent.client.connection import Arrived, Connection, Down, Event
from agent.client.sender import TransferOptions
from agent.client.servers import ServerError, Servers
from agent.policies.request_checks import check_keys, extended
from agent.policy import PolicyError, Sampling
from agent.types import Generation, Request
from agent.wire.messages import Ask, ModelDescription, Response

__all__ = ["ServerError", "ServerPolicy", "TransferOptions"]

ROUND_SECONDS = 0.005
"""Longest that `advance` waits for a response: the caller may have something else to do."""

TRIES = 5
"""Times a request is sent because servers forget its conversation."""


@dataclass(slots=True, eq=False)
class _Row:
    """A conversation.

    Attributes:
        key: The caller's name for it.
        ids: Its tokens, those of the request in flight included.
        request: In flight; or the last one.
        number: Of that request.
        tries: Times it was sent.
        line: The server it is at; None: it is nowhere.
        conversation: Its name there.
        held: Whether the server has its tokens up to the last response.
    """

    key: int
    ids: list[int] = field(default_factory=list)
    request: Request | None = None
    number: int = -1
    tries: int = 0
    connection: Connection | None = None
    conversation: int = -1
    held: bool = False


class ServerPolicy:
    """A `Policy` on servers. Not for several threads.

    Args:
        urls: The servers (`http://127.0.0.1:8201`). All have to be there at the start.
        model: What they have to sample from.
        token: Sent to each.
        timeout_s: Longest that an answer may take: servers that have ended nothing for so long are lost.
        transfer: How weights reach them.
        run: A name of this run (letters, digits, dashes), the same for all its processes, no other run's.
        sends: Whether this process sends the weights; a run's other processes wait for it.

    Attributes:
        version: Of the weights, as given to `load_weights`; 0 at first.
        window: Longest row, prompt and response (tokens).

    Raises:
        ServerError: A server cannot be reached, serves another model, or does not take the token.
    """

    def __init__(
        self,
        urls: Sequence[str],
        model: ModelDescription,
        *,
        token: str | None = None,
        timeout_s: float = 300.0,
        transfer: TransferOptions | None = None,
        run: str | None = None,
        sends: bool = True,
    ) -> None:
        self.version, self.window, self.dtype, self.takes_adapters = 0, model.window, torch.float32, False
        self._timeout_s, self._transfer = timeout_s, transfer or TransferOptions(timeout_s=timeout_s)
        self._run, self._sends, self._loads = run or secrets.token_hex(8), sends, 0
        self._label = ""  # of the weights; "": there are none
        self._rows: dict[int, _Row] = {}
        self._asked: dict[int, _Row] = {}  # by number, those with a request in flight
        self._numbers, self._conversations = count(), count()
        self._sampling = Sampling()
        self._moved = 0.0  # when something last arrived
        self._servers = Servers(urls, model, token, timeout_s)

    def release(self, key: int) -> None:
        """See `Policy.release`."""
        row = self._rows.pop(key, None)
        if row is not None:
            in_flight = self._asked.pop(row.number, None) is not None
            if row.connection is not None:
                row.connection.load -= 1
                row.connection.release(row.conversation, row.number if in_flight else None)

    def sleep(self) -> None:
        """See `Policy.sleep`: servers have accelerators of their own, so there is nothing to give back."""
        self._check_idle("sleep")

    def close(self) -> None:
        """Forgets everything, on the servers too as far as they can be reached at once."""
        for key in list(self._rows):
            self.release(key)
        self._servers.close()

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]], version: int) -> None:
        """See `Policy.load_weights`; servers that were lost are used again if they are back.

        Args:
            weights: (name, tensor of any dtype and device); of tied weights one name is enough. Taken to the
                end in any case, for to gather them may need all processes.
            version: Number of these weights.

        Raises:
            TransferError: They did not arrive; nothing can be sampled until others have.
            ServerError: There is no server.
            PolicyError: Responses are in flight.
        """
        self._check_idle("load_weights")
        self._hear(0.0)
        self._loads += 1
        self._label, label = "", f"{self._run}-{self._loads}"
        self._servers.load(iter(weights), version, label, self._transfer, sends=self._sends)
        self._label, self.version = label, version

    def held_weights(self) -> None:
        """See `Policy.held_weights`: servers read theirs back before they say that a transfer succeeded."""

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> list[Generation]:
        """See `Policy.generate`.

        Raises:
            PolicyError: As `start` and `advance`, or responses are in flight.
        """
        self._check_idle("generate")
        self._start(requests, sampling, whole=True)
        found: dict[int, Generation] = {}
        while self._asked:
            found.update(self._hear(1.0))
        return [found[request.key] for request in requests]

    def start(self, requests: Sequence[Request], sampling: Sampling) -> None:
        """See `Policy.start`.

        Raises:
            PolicyError: Two requests of one key, a continuation of an unknown key, an empty prompt, one that
                leaves no room in the window, another `sampling` than what is in flight, or no weights.
            ServerError: No server is left.
        """
        self._start(requests, sampling, whole=False)

    def advance(self) -> list[tuple[int, Generation]]:
        """See `Policy.advance`: hands out what has arrived, or waits a moment for something to arrive.

        Raises:
            ServerError: No server is left.
            PolicyError: A server refused a request.
        """
        return self._hear(ROUND_SECONDS) if self._asked else []

    def _check_idle(self, what: str) -> None:
        if self._asked:
            raise PolicyError(
                f"{what}: {len(self._asked)} responses are in flight; advance until they end, or release"
            )

    def _start(self, requests: Sequence[Request], sampling: Sampling, whole: bool) -> None:
        if not self._label:
            raise PolicyError("start: the policy servers have no weights; load_weights comes first")
        if self._asked and sampling != self._sampling:
            raise PolicyError(f"start: {self._sampling} is in flight, got {sampling}; finish that first")
        check_keys(requests, {row.key for row in self._asked.values()})
        old = [self._rows.get(request.key) for request in requests]
        new = [
            extended(row.ids if row else None, request, self.window)[0]
            for row, request in zip(old, requests, strict=True)
        ]
        if not self._asked:
            self._moved = time.monotonic()
        self._sampling = sampling
        for connection in self._servers.connections:
            connection.whole = whole
        rows = [self._rows.setdefault(request.key, _Row(request.key)) for request in requests]
        for row, ids, request in zip(rows, new, requests, strict=True):
            row.ids, row.request, row.tries = ids, request, 0
        self._ask(rows)

    def _ask(self, rows: Iterable[_Row]) -> None:
        """Sends the requests of rows to their servers, or to others."""
        asks: dict[Connection, list[Ask]] = {}
        for row in rows:
            request = row.request
            row.tries += 1
            if row.tries > TRIES:
                raise ServerError(f"policy servers have forgotten conversation {row.key} {TRIES} times")
            if row.connection is None:
                row.connection, row.held, row.conversation = (
                    self._servers.least(),
                    False,
                    next(self._conversations),
                )
                row.connection.load += 1
            row.number = next(self._numbers)
            self._asked[row.number] = row
            add_only = row.held and not request.fresh
            ask = Ask.model_construct(  # by a caller who keeps the contract, as `extended` has checked
                number=row.number,
                conversation=row.conversation,
                ids=list(request.ids) if add_only else row.ids,
                fresh=not add_only,
                seed=request.seed,
                max_new_tokens=request.max_new_tokens,
                keep=request.keep if add_only else None,
            )
            asks.setdefault(row.connection, []).append(ask)
        for connection, some in asks.items():
            connection.ask(self._label, self._sampling, some)

    def _hear(self, seconds: float) -> list[tuple[int, Generation]]:
        """Takes what the servers say, and waits for something to be said at most so long."""
        ended: list[tuple[int, Generation]] = []
        try:
            event = (
                self._servers.events.get(timeout=seconds) if seconds else self._servers.events.get_nowait()
            )
            while True:
                ended += self._take(event)
                event = self._servers.events.get_nowait()
        except Empty:
            pass
        if ended:
            self._moved = time.monotonic()
        elif self._asked and time.monotonic() - self._moved > self._timeout_s:
            self._moved = time.monotonic()
            for connection in {row.connection for row in self._asked.values()}:
                self._lose(
                    connection, f"no response has ended for {self._timeout_s:g} s (generator.timeout_s)"
                )
        return ended

    def _take(self, event: Event) -> list[tuple[int, Generation]]:
        if isinstance(event, Arrived):
            ended = []
            for response in event.responses:
                row = self._asked.pop(response.number, None)
                if row is not None and (generation := self._read(row, response)) is not None:
                    ended.append((row.key, generation))
            return ended
        if isinstance(event, Down):
            self._lose(event.connection, event.why)
            return []
        for row in self._rows.values():
            row.held = row.held and row.connection is not event.connection
        self._ask([self._asked.pop(number) for number in sorted(event.numbers) if number in self._asked])
        return []

    def _read(self, row: _Row, response: Response) -> Generation | None:
        """Takes a response; None if it has to be asked for again."""
        if response.fault is not None:
            if response.fault.reason == "refused":
                raise PolicyError(f"{row.connection.url}: {response.fault.message}")
            row.held = False
            self._ask([row])
            return None
        if response.version != self.version:
            self._asked[response.number] = row
            self._lose(row.connection, f"it sampled from version {response.version}, not {self.version}")
            return None
        row.ids.extend(response.ids)
        row.held = True
        return Generation(response.ids, response.logps, response.finish, response.signals)

    def _lose(self, connection: Connection, why: str) -> None:
        """Goes on without a server: what it owes is asked of others."""
        if not self._servers.drop(connection, why):
            return
        for row in self._rows.values():
            if row.connection is connection:
                row.connection, row.held = None, False
        waiting = [row for row in self._asked.values() if row.connection is None]
        for row in waiting:
            del self._asked[row.number]
            row.tries = 0
        self._ask(waiting)
