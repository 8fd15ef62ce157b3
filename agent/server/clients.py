"""What a server keeps per client: its conversations, and responses it has not acknowledged."""

from __future__ import annotations

import secrets
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, field

from agent.policy import Sampling
from agent.types import Generation, Request
from agent.wire.messages import Collected, Fault, Response


@dataclass(slots=True, eq=False)
class Waiting:
    """A client's question for responses, held back until `enough` or all have ended, or `until`."""

    future: Future[Collected]
    enough: int
    until: float


@dataclass(slots=True, eq=False)
class Client:
    """A client.

    Attributes:
        used: When it was last heard of.
        record: Name of all this; a client that was forgotten and comes back finds another one.
        keys: Conversation → the policy's key.
        seen: Highest number of its requests.
        due: Conversations with a response in flight or in line, with the request's number.
        results: Ended, not acknowledged.
        delivered: Delivery number of the last result.
        handed: Of the last one that was handed out.
        waiting: Its open question.
    """

    used: float
    record: str = field(default_factory=lambda: secrets.token_hex(8))
    keys: dict[int, int] = field(default_factory=dict)
    seen: int = -1
    due: dict[int, int] = field(default_factory=dict)
    results: deque[Response] = field(default_factory=deque)
    delivered: int = 0
    handed: int = 0
    waiting: Waiting | None = None

    @property
    def open(self) -> int:
        """Responses that are due, or have not been handed out yet."""
        return len(self.due) + self.delivered - self.handed

    def deliver(self, number: int, version: int, made: Generation | Fault) -> None:
        """Keeps what became of request `number`, until it is acknowledged."""
        self.delivered += 1
        given = (
            {"fault": made}
            if isinstance(made, Fault)
            else {"ids": made.ids, "logps": made.logps, "finish": made.finish, "signals": made.signals}
        )
        # Made of the policy's own numbers: there is nothing to check.
        self.results.append(
            Response.model_construct(delivery=self.delivered, number=number, version=version, **given)
        )

    def acknowledge(self, delivery: int) -> None:
        """Forgets the results up to a delivery number."""
        while self.results and self.results[0].delivery <= delivery:
            self.results.popleft()

    def ask(self, waiting: Waiting) -> None:
        """Puts a question; an older one, whose asker is gone, is answered with nothing."""
        if self.waiting is not None and not self.waiting.future.done():
            self.waiting.future.set_result(Collected(responses=[]))
        self.waiting = waiting

    def answer(self, now: float) -> None:
        """Answers the open question if it is time."""
        waiting = self.waiting
        if waiting is None:
            return
        if len(self.results) >= waiting.enough or not self.due or now >= waiting.until:
            self.waiting, self.handed = None, self.delivered
            if not waiting.future.done():
                waiting.future.set_result(Collected.model_construct(responses=list(self.results)))


@dataclass(slots=True, eq=False)
class Order:
    """A request on its way to a response.

    Attributes:
        client: Whose.
        conversation: The client's name for what the policy calls `request.key`.
        number: The client's.
        request: For the policy.
        sampling: How.
        dropped: Whether nobody wants it any more.
    """

    client: Client
    conversation: int
    number: int
    request: Request
    sampling: Sampling
    dropped: bool = False
