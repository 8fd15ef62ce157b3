"""Chooses some of a split's tasks, in the proportions of its families and however they are stored.

The choice depends only on the ids and families, on how many are wanted and on a seed. A smaller subset is
part of every larger one of the same seed.
"""

from __future__ import annotations

import hashlib
import heapq
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

from configs.seeds import derive
from envs.base import Task


def subset(ids: Sequence[str], families: Sequence[str], n: int, seed: int) -> list[int]:
    """Chooses `n` of the tasks, each family's number its share of `n`, rounded up or down.

    Within a family the order is that of a keyed hash of the ids; `turns` decides between families.

    Args:
        ids: Of all tasks, each once.
        families: Of the same tasks.
        n: How many; not less than 0 nor more than there are.
        seed: Another one chooses other tasks.

    Returns:
        Their places in `ids`, in an order that does not depend on the order of `ids`: the first m of them are
        the subset of m.

    Raises:
        ValueError: there are not so many, or an id is there twice.
    """
    if not 0 <= n <= len(ids):
        raise ValueError(f"cannot take {n} of {len(ids)} tasks")
    if len(set(ids)) < len(ids):
        raise ValueError(f"two tasks have one id, such as {Counter(ids).most_common(1)[0][0]!r}")
    key = derive(seed, "subset").to_bytes(8, "big")

    def rank(place: int) -> tuple[bytes, str]:
        return hashlib.blake2b(ids[place].encode(), digest_size=8, key=key).digest(), ids[place]

    members: dict[str, list[int]] = {}
    for place, family in enumerate(families):
        members.setdefault(family, []).append(place)
    queues = {family: iter(sorted(places, key=rank)) for family, places in members.items()}
    sizes = {family: len(places) for family, places in members.items()}
    return [next(queues[family]) for family in islice(turns(sizes), n)]


def turns(sizes: Mapping[str, int]) -> Iterator[str]:
    """Yields whose turn it is, until every family has had as many turns as it has members.

    After any number t of turns a family of size s among S members has had t·s/S of them, rounded up or down:
    the quota method of Balinski and Young (1975, "The quota method of apportionment", American Mathematical
    Monthly 82). Sainte-Laguë's and other divisor methods keep no such bound where one family is large and
    many are small; the largest remainders keep it, but can take a turn away when there is one more in all.

    A family's j-th turn may come as soon as its share of the turns exceeds j − 1, and has to come before it
    exceeds j; of those that may, the one that has to come first is taken.
    """
    total = sum(sizes.values())
    waiting = [(0, family) for family, size in sizes.items() if size]
    heapq.heapify(waiting)
    had = dict.fromkeys(sizes, 0)
    ready: list[tuple[float, str]] = []
    for turn in range(total):
        while waiting and waiting[0][0] <= turn:
            _, family = heapq.heappop(waiting)
            heapq.heappush(ready, ((had[family] + 1) / sizes[family], family))
        _, family = heapq.heappop(ready)
        had[family] += 1
        if had[family] < sizes[family]:
            # Its share of t + 1 turns, (t + 1)·s/S, exceeds what it has had first at this t.
            heapq.heappush(waiting, (had[family] * total // sizes[family], family))
        yield family


@dataclass(frozen=True)
class Roster:
    """All tasks of a split; their ids and families are known before any task is made.

    Attributes:
        size: How many there are.
        names: Returns their ids and their families, each in the split's own order.
        take: Returns the tasks at places, or in a slice, of that order.
    """

    size: int
    names: Callable[[], tuple[Sequence[str], Sequence[str]]]
    take: Callable[[Sequence[int] | slice], Sequence[Task]]

    @classmethod
    def of(cls, tasks: Sequence[Task]) -> Roster:
        """Returns the roster of tasks that are there already."""

        def take(which: Sequence[int] | slice) -> Sequence[Task]:
            return tasks[which] if isinstance(which, slice) else [tasks[place] for place in which]

        return cls(len(tasks), lambda: ([t.id for t in tasks], [t.family for t in tasks]), take)

    def choose(self, n: int | None, seed: int) -> Chosen:
        """Chooses `n` tasks as `subset` does; all of them, in the split's own order, if there are no more."""
        if n is None or n >= self.size:
            return Chosen(self, None)
        return Chosen(self, subset(*self.names(), n, seed))


@dataclass(frozen=True)
class Chosen:
    """Tasks of a split that were chosen to be played.

    Attributes:
        roster: All tasks of the split.
        places: Which of them; None for all.
    """

    roster: Roster
    places: Sequence[int] | None

    @cached_property
    def tasks(self) -> Sequence[Task]:
        """The tasks themselves."""
        return self.roster.take(slice(None) if self.places is None else self.places)

    @cached_property
    def names(self) -> tuple[Sequence[str], Sequence[str]]:
        """Their ids and families."""
        ids, families = self.roster.names()
        if self.places is None:
            return ids, families
        return [ids[place] for place in self.places], [families[place] for place in self.places]

    @property
    def of(self) -> int:
        """How many they were chosen from."""
        return self.roster.size

    def __len__(self) -> int:
        return self.of if self.places is None else len(self.places)
