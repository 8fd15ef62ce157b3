"""The servers of a run: which of them are in use, and which conversation goes to which."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from queue import Queue

from agent.client.connection import Connection, Event
from agent.client.http_calls import CONNECT_SECONDS, HttpCalls, Lost, Refused
from agent.client.sender import Sender, TransferOptions
from agent.policy import PolicyError
from agent.wire.messages import ModelDescription, WeightsState
from agent.wire.transfer import Named, TransferError

SLACK_SECONDS = 5.0
"""Time that a transfer's sender has beyond its limit, to tell those who wait what went wrong."""


class ServerError(PolicyError):
    """The policy servers cannot be used."""


class Servers:
    """Several servers. Not for several threads.

    Args:
        urls: Theirs.
        model: What they have to sample from.
        token: Sent to each.
        timeout_s: Longest that a call is tried for.

    Attributes:
        events: What happens at the servers.

    Raises:
        ServerError: One cannot be reached, serves another model, or does not take the token.
    """

    def __init__(
        self, urls: Sequence[str], model: ModelDescription, token: str | None, timeout_s: float
    ) -> None:
        self.events: Queue[Event] = Queue()
        self._model, self._token, self._timeout_s = model, token, timeout_s
        self._lines: dict[str, Connection] = {}
        self._why: dict[str, str] = dict.fromkeys(_checked(urls), "not asked yet")  # of those not in use
        for url in list(self._why):
            self._connect(url, timeout_s)
        if self._why:
            self.close()
            raise ServerError(
                f"policy server {self._reasons()}. `run.py serve-policy` starts one; generator.urls has to "
                "name those that are there"
            )

    @property
    def lines(self) -> list[Connection]:
        """Those in use, at least one.

        Raises:
            ServerError: There is none.
        """
        if not self._lines:
            raise ServerError(
                f"no policy server is left: {self._reasons()}. Start them again (`run.py serve-policy`) and "
                "go on from the last checkpoint"
            )
        return list(self._lines.values())

    def least(self) -> Connection:
        """The one with the fewest conversations."""
        return min(self.lines, key=lambda line: line.load)

    def drop(self, line: Connection, why: str) -> bool:
        """Uses a server no more; returns whether it was in use."""
        if self._lines.get(line.url) is not line:
            return False
        del self._lines[line.url]
        self._why[line.url] = why
        line.close()
        if self._lines:
            warnings.warn(f"policy server {line.url}: {why}. Going on without it.", stacklevel=2)
        return True

    def load(
        self, weights: Iterator[Named], version: int, label: str, options: TransferOptions, *, sends: bool
    ) -> None:
        """Brings weights to all servers that are there, those that were dropped included; or waits for it.

        Args:
            weights: Taken to the end in any case, for to gather them needs all processes of a run.
            version: Theirs.
            label: Of the transfer.
            options: How.
            sends: Whether this process sends them.

        Raises:
            TransferError: They did not arrive.
            ServerError: There is no server.
        """
        try:
            self._gather()
            if sends:
                sender = Sender(self.lines, label, version, options)
                sender.send(weights)
                for line, why in sender.lost.items():
                    self.drop(line, why)
        finally:
            for _ in weights:
                pass
        if not sends:
            self._wait(label, options.timeout_s + SLACK_SECONDS)

    def close(self) -> None:
        """Uses none any more."""
        for line in self._lines.values():
            line.close()
        for line in self._lines.values():
            line.close(wait=3.0)

    def _gather(self) -> None:
        """Looks who is there: some that were in use may have gone, and others come back."""
        for line in list(self._lines.values()):
            try:
                line.link.hello(self._model)
            except (Lost, Refused) as error:
                self.drop(line, str(error))
        for url in list(self._why):
            self._connect(url, CONNECT_SECONDS)

    def _connect(self, url: str, within: float) -> None:
        """Begins to use a server if it can be."""
        try:
            link = HttpCalls(url, self._token, self._timeout_s)
            self._lines[url] = Connection(link, link.hello(self._model, within), self.events)
        except (Lost, Refused) as error:
            self._why[url] = str(error)
        else:
            del self._why[url]

    def _wait(self, label: str, seconds: float) -> None:
        """Waits until the servers have the weights of a transfer that another process sends."""
        until, have = time.monotonic() + seconds, set()
        while not have.issuperset(self.lines):
            for line in set(self.lines) - have:
                try:
                    state = line.link.get("/v1/weights", WeightsState)
                except (Lost, Refused) as error:
                    self.drop(line, str(error))
                    continue
                if state.failed == label:
                    raise TransferError(f"{line.url}: {state.fault}")
                if state.label == label:
                    have.add(line)
                elif time.monotonic() > until:
                    self.drop(line, f"it did not get the weights of transfer {label} in {seconds:g} s")
            time.sleep(0.02)

    def _reasons(self) -> str:
        return "; ".join(f"{url}: {why}" for url, why in self._why.items())


def _checked(urls: Iterable[str]) -> list[str]:
    """The addresses, without a slash at their end.

    Raises:
        ServerError: There is none, or one twice, or one that is none.
    """
    found = [url.rstrip("/") for url in urls]
    if not found or len(set(found)) < len(found):
        raise ServerError(f"generator.urls: expected different addresses, got {found}")
    for url in found:
        if not url.startswith(("http://", "https://")):
            raise ServerError(f"generator.urls: {url!r} is no address like http://127.0.0.1:8201")
    return found
