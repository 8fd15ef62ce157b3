"""Rooms of the generated ALFWorld games: which receptacles they have and where these stand.

A *layout* is one room: its receptacles, which of them share a location and which can be opened.
Layouts are a finite, fixed set: layout `i` of a room is drawn from a seed made of the room's name
and `i` alone, so every run and every machine sees the same rooms. The first `TRAIN_LAYOUTS` of each
room are for training (and `valid_seen`), the rest are held out for `valid_unseen`.

All probabilities come from `layout_stats.json`, a table of counts measured on the official training
games (27 scenes per room). It holds no game.
"""

from __future__ import annotations

import json
import math
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

ROOMS = ("kitchen", "living", "bedroom", "bathroom")
TRAIN_LAYOUTS = 200
UNSEEN_LAYOUTS = 50

# Smallest rooms, difficulty 0: this many receptacles.
SMALLEST = (5, 7)

T = TypeVar("T")


@cache
def stats() -> dict[str, Any]:
    """The measured table; see its `about` entry for the meaning of each part."""
    return json.loads((Path(__file__).parent / "layout_stats.json").read_text(encoding="utf-8"))


@dataclass(frozen=True, slots=True)
class Receptacle:
    """One piece of furniture.

    Attributes:
        kind: Class name as in the PDDL types (`CounterTop`).
        location: Number of the location it stands at; receptacles may share one.
        openable: Whether it is closed at first. Some drawers and cabinets are not openable and
            always accessible.
    """

    kind: str
    location: int
    openable: bool


@dataclass(frozen=True, slots=True)
class Layout:
    """One room.

    Attributes:
        key: Short unique name (`ki007`), part of a game's id.
        room: One of `ROOMS`.
        receptacles: All of them, ordered so that equal kinds are next to each other.
        rank: A fixed random order of `receptacles` (indices); a smaller room keeps its beginning.
        smallest: Number of receptacles at difficulty 0.
    """

    key: str
    room: str
    receptacles: tuple[Receptacle, ...]
    rank: tuple[int, ...]
    smallest: int

    @property
    def kinds(self) -> frozenset[str]:
        """Receptacle classes present."""
        return frozenset(r.kind for r in self.receptacles)

    def shrunk(self, difficulty: float, needed: Sequence[str]) -> list[Receptacle]:
        """The receptacles of this room at a lower difficulty.

        Args:
            difficulty: 0 (5 to 7 receptacles) to 1 (all); linear between.
            needed: Kinds of which at least one is kept whatever the difficulty.

        Returns:
            A subset in the layout's own order; a room of higher difficulty contains the one of lower
            difficulty when `needed` is the same.
        """
        size = round(self.smallest + difficulty * (len(self.receptacles) - self.smallest))
        kept: list[int] = []
        for kind in needed:
            if not any(self.receptacles[i].kind == kind for i in kept):
                kept.append(next(i for i in self.rank if self.receptacles[i].kind == kind))
        for i in self.rank:
            if len(kept) >= size:
                break
            if i not in kept:
                kept.append(i)
        return [self.receptacles[i] for i in sorted(kept)]


def draw(rng: random.Random, weights: dict[T, float]) -> T:
    """One key of `weights`, with probability proportional to its value.

    Raises:
        ValueError: no key has a positive weight.
    """
    total = sum(weights.values())
    if total <= 0:
        raise ValueError(f"nothing to draw from: {weights!r}")
    at = rng.random() * total
    for key, weight in weights.items():
        at -= weight
        if at < 0:
            return key
    return next(k for k in reversed(weights) if weights[k] > 0)  # rounding left `at` at exactly 0


def draw_count(rng: random.Random, histogram: Sequence[float]) -> int:
    """A number drawn from a histogram: `histogram[i]` is the weight of `i`."""
    return draw(rng, dict(enumerate(histogram)))


def layout_indices(split: str) -> range:
    """Numbers of the layouts a split may use.

    Raises:
        ValueError: unknown split.
    """
    if split in ("train", "valid_seen"):
        return range(TRAIN_LAYOUTS)
    if split == "valid_unseen":
        return range(TRAIN_LAYOUTS, TRAIN_LAYOUTS + UNSEEN_LAYOUTS)
    raise ValueError(f"unknown split {split!r}; use train, valid_seen or valid_unseen")


@cache
def layout(room: str, index: int) -> Layout:
    """Layout `index` of a room; always the same for the same arguments."""
    rng = random.Random(f"alfworld layout {room} {index}")
    table = stats()
    counts = {k: draw_count(rng, h) for k, h in table["rooms"][room]["receptacles"].items()}
    kinds = [k for k in counts for _ in range(counts[k])]
    locations = _share_locations(rng, kinds, table["rooms"][room]["clusters"])
    openable = table["openable"]
    receptacles = tuple(
        Receptacle(kind, location, rng.random() < openable.get(kind, 0.0))
        for kind, location in zip(kinds, locations, strict=True)
    )
    rank = list(range(len(kinds)))
    rng.shuffle(rank)
    return Layout(f"{room[:2]}{index:03d}", room, receptacles, tuple(rank), rng.randint(*SMALLEST))


def _share_locations(rng: random.Random, kinds: list[str], clusters: list) -> list[int]:
    """Gives every receptacle a location number; clusters of classes stand at one.

    Each cluster appears as often as measured (the fraction of its mean number by chance). Receptacles of
    one kind at one location are neighbours in number, as they mostly are in the real rooms, where
    numbers follow coordinates.
    """
    free: dict[str, list[int]] = defaultdict(list)
    for i, kind in enumerate(kinds):
        free[kind].append(i)
    location = list(range(len(kinds)))
    for members, mean in clusters:
        for _ in range(math.floor(mean + rng.random())):
            need = {k: members.count(k) for k in members}
            if any(len(free[k]) < n for k, n in need.items()):
                break
            together = []
            for kind, n in need.items():
                start = rng.randrange(len(free[kind]) - n + 1)
                together += free[kind][start : start + n]
                del free[kind][start : start + n]
            for i in together:
                location[i] = together[0]
    return location
