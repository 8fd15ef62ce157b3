"""What an environment server remembers of a session, and of a batch until it is answered."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field

from envs.wire.messages import Answer, Batch, Fork, Opening, Played, Stepping


class PendingBatch:
    """A batch, and the answers to its requests so far."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.requests = (*batch.open, *batch.fork, *batch.step)
        self.future: Future[Answer] = Future()
        self._played: list[Played | None] = [None] * len(self.requests)
        self._left = len(self.requests)

    def put(self, slot: int, played: Played) -> None:
        """Takes the answer to the request in a slot."""
        self._played[slot] = played
        self._left -= 1
        self.finish()

    def finish(self) -> None:
        """Hands the answer out if nothing is missing from it."""
        if not self._left and not self.future.done():
            # Every part has been checked, and the batch is as long as its requests.
            self.future.set_result(Answer.model_construct(played=self._played))


@dataclass(slots=True, eq=False)
class Session:
    """A trajectory of a client.

    Attributes:
        key: The pool's.
        name: The client's.
        position: Actions played, the one being played included.
        request: The last one, to know it again.
        last: The answer to it; None while it is played.
        waiting: Where that answer goes: the batches and their slots.
        used: When it was last asked for something.
    """

    key: int
    name: str
    position: int
    request: Opening | Fork | Stepping
    used: float
    last: Played | None = None
    waiting: list[tuple[PendingBatch, int]] = field(default_factory=list)
