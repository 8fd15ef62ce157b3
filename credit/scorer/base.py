"""What a pair scorer is, and the wrapper that spares it needless work.

A scorer is one file `credit/scorer/<name>.py` with one class `Scorer` (keyword options with defaults, heavy
imports inside the constructor) that has a `score` method as in `PairScorer`.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from credit.base import did_you_mean


class PairScorer(Protocol):
    """Similarity of text pairs."""

    def score(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        """float [len(pairs)] in [0, 1]; 1 for the same meaning. The order within a pair may matter."""


class UniquePairs:
    """Sends each distinct pair of distinct texts to a scorer once, and remembers it.

    Identical texts score exactly 1 without asking. When `capacity` remembered pairs are exceeded, memory
    starts anew.
    """

    def __init__(self, scorer: PairScorer, capacity: int = 500_000) -> None:
        if capacity < 0:
            raise ValueError(f"UniquePairs.capacity: got {capacity}, expected >= 0 remembered pairs")
        self.scorer = scorer
        self.capacity = capacity
        self._known: dict[tuple[str, str], float] = {}

    def score(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        """float [len(pairs)]; see `PairScorer`."""
        distinct = dict.fromkeys(pair for pair in pairs if pair[0] != pair[1])
        known = {pair: self._known[pair] for pair in distinct if pair in self._known}
        asked = [pair for pair in distinct if pair not in known]
        if asked:
            fresh = dict(
                zip(asked, np.asarray(self.scorer.score(asked), dtype=np.float64).tolist(), strict=True)
            )
            known |= fresh
            if len(self._known) + len(fresh) > self.capacity:
                self._known = {}
            if len(fresh) <= self.capacity:
                self._known |= fresh
        return np.array([1.0 if a == b else known[a, b] for a, b in pairs], dtype=np.float64)


def scorer_names() -> list[str]:
    """Names of the scorers there are."""
    return [m.name for m in pkgutil.iter_modules([str(Path(__file__).parent)]) if m.name != "base"]


def make_scorer(name: str, **options: Any) -> UniquePairs:
    """The scorer `name`, asked once a distinct pair.

    Raises:
        ValueError: unknown name or option, with the nearest known one.
    """
    if name not in scorer_names():
        raise ValueError(f"credit.scorer: no scorer {name!r}{did_you_mean(name, scorer_names())}")
    scorer = importlib.import_module(f"credit.scorer.{name}").Scorer
    known = list(inspect.signature(scorer).parameters)
    for option in options:
        if option not in known:
            raise ValueError(f"credit.scorer.{name}: no option {option!r}{did_you_mean(option, known)}")
    return UniquePairs(scorer(**options))
