"""Ranks that are threads of one process: the same calls in the same order, with real waiting."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any


class ThreadRanks:
    """One of `size` ranks; see `agent.ranks.Ranks`."""

    def __init__(self, rank: int, values: list[Any], barrier: threading.Barrier) -> None:
        self.rank, self.size = rank, len(values)
        self._values, self._barrier = values, barrier

    def gather(self, value: Any) -> list[Any]:
        """See `Ranks.gather`."""
        self._values[self.rank] = value
        self._barrier.wait(30)
        everything = list(self._values)
        self._barrier.wait(30)
        return everything

    def share(self, value: Any) -> Any:
        """See `Ranks.share`."""
        return self.gather(value)[0]


def on_ranks(size: int, work: Callable[[ThreadRanks], Any]) -> list[Any]:
    """Returns what `work` returned on each rank, or the exception it raised."""
    values: list[Any] = [None] * size
    barrier = threading.Barrier(size)
    with ThreadPoolExecutor(size) as pool:
        futures = [pool.submit(work, ThreadRanks(rank, values, barrier)) for rank in range(size)]
        return [future.exception() or future.result() for future in futures]
