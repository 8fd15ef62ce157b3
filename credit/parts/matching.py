"""SCPO's matching for all trajectories of an update at once, with no more similarities than it needs.

`Matching` gives what `credit.stages.scpo.allocate`, the rule in its plainest form, gives for each matrix.
Similarities cost a model's forward pass, so they are asked for only where they can matter:

- chronological, reverse, midpoint_interleave and random visit the steps in an order known beforehand. When
  its turn comes, a step needs M at the positions still admissible, and under `argmax` nothing if one of those
  is known to be 1, the largest possible.
- similarity_desc needs every step's maximum before the first visit: all of M, unless some maxima are known.
  Steps with an identical reference step have the maximum 1, so they come first, in time order, as above. Of
  the others only those can still be credited that have a match among what is admissible by then, since that
  never grows again. Only their maxima are needed, and none where a trajectory has just one such step.
- `monotone: none` makes the order irrelevant.

What is left out changes no position and no credit; the tests compare with complete matrices.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

ORDERS = ("chronological", "reverse", "similarity_desc", "midpoint_interleave", "random")


@dataclass(frozen=True)
class Rule:
    """Who is matched with whom; the rule itself is `credit.stages.scpo.allocate`.

    Attributes:
        theta: least similarity of a match.
        order: one of `ORDERS`, see `visiting_order`.
        monotone: running_max, chain or none: which positions stay admissible.
        pick: argmax or earliest: which admissible position is taken.
    """

    theta: float
    order: str
    monotone: str
    pick: str


class Similarities(Protocol):
    """Similarities by entry of a `Layout`."""

    def read(self, entries: np.ndarray) -> np.ndarray:
        """float: those known, NaN for the others."""

    def identical(self, entries: np.ndarray) -> np.ndarray:
        """bool: whether the entry is known to be 1 and every entry without this mark is less than 1."""

    def fetch(self, entries: np.ndarray) -> None:
        """From now on `read` knows these."""


@dataclass(frozen=True, eq=False)
class Layout:
    """Matrices M [m, l] (reference by failed steps) of F pairs of trajectories, as one row of entries.

    Matrix after matrix, and in each the column of failed step 0 first.

    Attributes:
        heights: int [F], m.
        widths: int [F], l.
    """

    heights: np.ndarray
    widths: np.ndarray

    @cached_property
    def first(self) -> np.ndarray:
        """int [F+1]: entries of matrix f are first[f]:first[f+1]."""
        return np.concatenate([[0], np.cumsum(self.heights * self.widths)])

    @cached_property
    def first_column(self) -> np.ndarray:
        """int [F+1]: columns of matrix f, counted over all matrices."""
        return np.concatenate([[0], np.cumsum(self.widths)])

    def columns(self, matrices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(matrix, failed step) int [C] of every column of these matrices, in order."""
        widths = self.widths[matrices]
        return np.repeat(matrices, widths), ranges(np.zeros(len(matrices), dtype=np.int64), widths)

    def entries(self, f: np.ndarray, v: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        """Entries of positions low <= j < high of columns (f, v), column after column."""
        return ranges(self.first[f] + v * self.heights[f] + low, high - low)


def ranges(start: np.ndarray, length: np.ndarray) -> np.ndarray:
    """start[i], start[i] + 1, … (length[i] numbers), one i after the other."""
    shift = start - np.cumsum(length) + length
    return np.repeat(shift, length) + np.arange(int(length.sum()))


def reduce(ufunc: np.ufunc, values: np.ndarray, length: np.ndarray, empty: float) -> np.ndarray:
    """`ufunc` over segments of the given lengths, one after the other; `empty` for those of length 0."""
    result = np.full(len(length), empty, dtype=values.dtype)
    filled = length > 0
    if filled.any():
        result[filled] = ufunc.reduceat(values, (np.cumsum(length) - length)[filled])
    return result


def visiting_order(similarity: np.ndarray, order: str, rng: np.random.Generator | None = None) -> np.ndarray:
    """int [l]: in which order the failed steps v = 0..l-1 ask for a reference position.

    `similarity_desc`: by max_j M[j, v], best first, ties by v. `midpoint_interleave`: the middle step, then
    the middle of each half, and so on, breadth first. `random` draws from `rng`.
    """
    n = similarity.shape[1]
    if order == "similarity_desc":
        return np.argsort(-similarity.max(axis=0, initial=0.0), kind="stable")
    if order == "midpoint_interleave":
        intervals, visited = [(0, n)], []
        for low, high in intervals:  # grows while it is walked
            if low < high:
                middle = (low + high) // 2
                visited.append(middle)
                intervals += [(low, middle), (middle + 1, high)]
        return np.array(visited, dtype=np.int64)
    if order == "random":
        return rng.permutation(n)
    return np.arange(n)[:: -1 if order == "reverse" else 1]


class Matching:
    """The allocation of several trajectories, step by step; `position` int [F, L] is its result (-1: none).

    All trajectories move together: visit k is the k-th of each, done in one pass over arrays with one batch
    of similarities. What is still admissible to step v of matrix f is one interval, low[f, v] <= j <
    high[f, v], under every `monotone`.
    """

    def __init__(self, layout: Layout, similarities: Similarities, rule: Rule) -> None:
        self.layout, self.similarities, self.rule = layout, similarities, rule
        steps = np.arange(int(layout.widths.max(initial=0)))  # v, up to the longest failed trajectory
        self.position = np.full((len(layout.widths), len(steps)), -1, dtype=np.int64)
        self.low = np.zeros_like(self.position)
        self.high = np.where(steps < layout.widths[:, None], layout.heights[:, None], 0)

    def run(self, matrices: np.ndarray, rng: Callable[[int], np.random.Generator]) -> np.ndarray:
        """Allocates in these matrices.

        Args:
            matrices: int [n], which ones.
            rng: a generator for each matrix, for order random.

        Returns:
            `position`.
        """
        f, v = self.layout.columns(matrices)
        if self.rule.order == "similarity_desc":
            self._best_first(f, v)
            return self.position
        rank = np.empty(len(v), dtype=np.int64)
        rank_of_width: dict[int, np.ndarray] = {}  # all orders but random depend on the width alone
        first = 0
        for matrix, width in zip(matrices.tolist(), self.layout.widths[matrices].tolist(), strict=True):
            if self.rule.order == "random" or width not in rank_of_width:
                # the inverse of the visiting order: the turn at which each step comes
                generator = rng(matrix) if self.rule.order == "random" else None
                rank_of_width[width] = np.argsort(
                    visiting_order(np.zeros((1, width)), self.rule.order, generator)
                )
            rank[first : first + width] = rank_of_width[width]
            first += width
        self._visit_all(f, v, rank)
        return self.position

    def _best_first(self, f: np.ndarray, v: np.ndarray) -> None:
        """Order similarity_desc: visits columns (f, v) by their maxima, largest first, ties by v."""
        # 1. an identical reference step makes the maximum 1, which nothing exceeds: these are the first to be
        #    visited, by v, and no similarity is needed to know it
        heights = self.layout.heights[f]
        entries = self.layout.entries(f, v, np.zeros_like(heights), heights)
        known = reduce(np.logical_or, self.similarities.identical(entries), heights, False)
        self._visit_all(f[known], v[known], _rank(f[known], v[known]))
        # 2. what is admissible now only shrinks, so a step without a match in it is out whatever its maximum
        f, v = f[~known], v[~known]
        low, high = self.low[f, v], np.maximum(self.high[f, v], self.low[f, v])
        window = self.layout.entries(f, v, low, high)
        self.similarities.fetch(window)
        best = reduce(np.maximum, self.similarities.read(window), high - low, -1.0)
        f, v = f[best >= self.rule.theta], v[best >= self.rule.theta]
        # 3. the order is by the maximum over the whole column, not over what is admissible; it matters only
        #    between rivals, steps of one trajectory that can take positions from each other
        key = np.zeros(len(f))
        rivals = np.bincount(f)[f] > 1 if len(f) else np.zeros(0, dtype=bool)
        if self.rule.monotone != "none" and rivals.any():
            heights = self.layout.heights[f[rivals]]
            entries = self.layout.entries(f[rivals], v[rivals], np.zeros_like(heights), heights)
            self.similarities.fetch(entries)
            key[rivals] = -reduce(np.maximum, self.similarities.read(entries), heights, 0.0)
        self._visit_all(f, v, _rank(f, v, key))

    def _visit_all(self, f: np.ndarray, v: np.ndarray, rank: np.ndarray) -> None:
        """Visits columns; in each matrix in the order of `rank`, which counts from 0 without gaps.

        Columns of one rank are of different matrices, so they are visited at once.
        """
        by_rank = np.argsort(rank, kind="stable")
        for visit in np.split(by_rank, np.cumsum(np.bincount(rank))[:-1]) if len(rank) else ():
            self._visit(f[visit], v[visit])

    def _visit(self, f: np.ndarray, v: np.ndarray) -> None:
        """Credits one column each of different matrices, where something admissible reaches theta."""
        low, high = self.low[f, v], self.high[f, v]
        f, v, low, high = (values[high > low] for values in (f, v, low, high))
        if not len(f):
            return
        entries, length = self.layout.entries(f, v, low, high), high - low
        value = self._values(entries, length)
        best = reduce(np.maximum, value, length, -1.0)
        # the earliest of several hits is taken: of all matches for `earliest`, of the largest for `argmax`
        hit = value >= (self.rule.theta if self.rule.pick == "earliest" else np.repeat(best, length))
        offset = reduce(np.minimum, np.where(hit, ranges(np.zeros_like(low), length), high.max()), length, 0)
        won = best >= self.rule.theta
        self._credit(f[won], v[won], (low + offset)[won])

    def _values(self, entries: np.ndarray, length: np.ndarray) -> np.ndarray:
        """M at entries in segments of these lengths, one per column; -1 where it cannot matter."""
        value = self.similarities.read(entries)
        if self.rule.pick == "earliest":
            # what follows a match that is known cannot be the earliest
            place = np.arange(len(entries))
            match = np.where(value >= self.rule.theta, place, len(entries))
            useless = place > np.repeat(reduce(np.minimum, match, length, 0), length)
        else:
            # nothing exceeds an identical step's 1, and the earliest 1 is among those marked
            top = reduce(np.logical_or, self.similarities.identical(entries), length, False)
            useless = np.repeat(top, length)
        self.similarities.fetch(entries[np.isnan(value) & ~useless])
        value = self.similarities.read(entries)
        return np.where(np.isnan(value), -1.0, value)

    def _credit(self, f: np.ndarray, v: np.ndarray, j: np.ndarray) -> None:
        self.position[f, v] = j
        v, j = v[:, None], j[:, None]
        if self.rule.monotone == "running_max":  # for all steps, whenever they are visited
            self.low[f] = j + 1
        elif self.rule.monotone == "chain":  # later steps beyond j, earlier ones before it
            step = np.arange(self.position.shape[1])
            self.low[f] = np.where(step > v, np.maximum(self.low[f], j + 1), self.low[f])
            self.high[f] = np.where(step < v, np.minimum(self.high[f], j), self.high[f])


def _rank(f: np.ndarray, v: np.ndarray, key: np.ndarray | None = None) -> np.ndarray:
    """int [C]: place of each column in its matrix, by `key`, ties by v."""
    order = np.lexsort((v, f) if key is None else (v, key, f))
    rank = np.empty(len(f), dtype=np.int64)
    count = np.bincount(f) if len(f) else np.zeros(0, dtype=np.int64)
    rank[order] = ranges(np.zeros(len(count), dtype=np.int64), count)
    return rank
