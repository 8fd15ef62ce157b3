"""What code that works in one of several processes needs to know of the others."""

from __future__ import annotations

from typing import Protocol, TypeVar

from configs.errors import UserError

T = TypeVar("T")


class RanksError(UserError, RuntimeError):
    """Another process of the run died, or did not come in time; the message says what was waited for."""


class Ranks(Protocol):
    """A channel between the processes of a run: every one calls the same methods in the same order.

    Attributes:
        rank: Of this process, from 0.
        size: How many there are.
    """

    rank: int
    size: int

    def gather(self, value: T) -> list[T]:
        """Every rank's value, by rank, on every rank; anything that can be pickled."""

    def share(self, value: T) -> T:
        """Rank 0's value, on every rank."""


class Alone:
    """A run of one process."""

    rank, size = 0, 1

    def gather(self, value: T) -> list[T]:
        """See `Ranks.gather`."""
        return [value]

    def share(self, value: T) -> T:
        """See `Ranks.share`."""
        return value


ALONE = Alone()
