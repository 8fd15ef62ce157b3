"""Chooses where a trajectory is played: members of a group together, the load spread evenly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Generic, TypeVar

P = TypeVar("P", bound=Hashable)

SPARE = 16
"""Trajectories a place may have more than the emptiest one before a group is split."""


class Placement(Generic[P]):
    """Keeps count of the trajectories at each place.

    Members of a group share what their place has loaded (a compiled game, pages of a catalogue), so they go
    to one place while it is not much fuller than others.
    """

    def __init__(self) -> None:
        self._load: Counter[P] = Counter()
        self._homes: dict[str, list[P]] = {}

    def take(self, group: str, places: Sequence[P]) -> P:
        """Returns the place of the next trajectory of `group`, one of `places`, and counts it there."""
        emptiest = min(places, key=lambda place: self._load[place])
        homes = self._homes.get(group)
        near = homes[-1] if homes and homes[-1] in places else emptiest
        place = near if self._load[near] <= self._load[emptiest] + SPARE else emptiest
        self.join(group, place)
        return place

    def join(self, group: str, place: P) -> None:
        """Counts one trajectory of `group` more at `place`."""
        self._load[place] += 1
        self._homes.setdefault(group, []).append(place)

    def leave(self, group: str, place: P) -> None:
        """Counts one trajectory of `group` less at `place`."""
        self._load[place] -= 1
        self._homes[group].remove(place)
        if not self._homes[group]:
            del self._homes[group]

    def load(self, place: P) -> int:
        """Returns the number of trajectories at `place`."""
        return self._load[place]
