"""How much credit methods disagree about the same steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np
from scipy.stats import rankdata


def sign_distance(advantages: np.ndarray) -> np.ndarray:
    """float [N]: mean over pairs of methods of |sign a - sign b| / 2 at a step; 0 with one method.

    Opposite signs count 1, a sign against 0 counts 1/2: a method that is silent disagrees less than one that
    says the contrary.

    Args:
        advantages: float [M, N], method by step.
    """
    m = len(advantages)
    negative, positive = (advantages < 0).sum(axis=0), (advantages > 0).sum(axis=0)
    silent = m - negative - positive
    return (negative * positive + silent * (m - silent) / 2) / max(m * (m - 1) / 2, 1)


def spread(advantages: np.ndarray) -> np.ndarray:
    """float [N]: largest less smallest advantage of a step, each method's in units of its own rms.

    With one method: |advantage| in that unit.
    """
    rms = np.sqrt(np.mean(advantages**2, axis=1, keepdims=True)) if advantages.size else 1.0
    scaled = advantages / np.where(rms > 0, rms, 1.0)
    return np.abs(scaled[0]) if len(scaled) == 1 else np.ptp(scaled, axis=0)


@dataclass
class Pair:
    """Two methods over all steps so far.

    Attributes:
        first: Name of the one.
        second: Name of the other.
        steps: Steps compared.
        opposite: Steps at which one is above and the other below 0.
        one_silent: Steps at which one of them is exactly 0, the other not.
    """

    first: str
    second: str
    steps: int = 0
    opposite: int = 0
    one_silent: int = 0
    _ranked: float = 0.0
    _ranked_steps: int = 0

    def add(self, first: np.ndarray, second: np.ndarray) -> None:
        """Counts the steps of one update."""
        self.steps += len(first)
        self.opposite += int((np.sign(first) * np.sign(second) < 0).sum())
        self.one_silent += int(((first == 0) != (second == 0)).sum())
        a, b = rankdata(first), rankdata(second)
        if len(a) and np.ptp(a) > 0 and np.ptp(b) > 0:
            self._ranked += len(a) * float(np.corrcoef(a, b)[0, 1])
            self._ranked_steps += len(a)

    @property
    def rank_correlation(self) -> float | None:
        """Spearman's, over the steps of an update, mean over updates weighted by steps.

        None if one of the methods is constant in every update.
        """
        return self._ranked / self._ranked_steps if self._ranked_steps else None


@dataclass
class MethodCounts:
    """One method over all steps so far.

    Attributes:
        name: The method.
        steps: Steps so far.
        positive: Steps with an advantage above 0.
        zero: Steps with an advantage of exactly 0.
        largest: Largest |advantage|.
        unlike: Steps whose advantage is not exactly the recorded one; None if none was recorded.
        unlike_by: Largest |difference| to a recorded one.
    """

    name: str
    steps: int = 0
    positive: int = 0
    zero: int = 0
    largest: float = 0.0
    unlike: int | None = None
    unlike_by: float = 0.0
    _total: float = field(default=0.0, repr=False)

    def add(self, advantage: np.ndarray, recorded: np.ndarray | None) -> None:
        """Counts the steps of one update."""
        self.steps += len(advantage)
        self.positive += int((advantage > 0).sum())
        self.zero += int((advantage == 0).sum())
        self.largest = max(self.largest, float(np.abs(advantage).max(initial=0.0)))
        self._total += float(np.abs(advantage).sum())
        if recorded is not None:
            self.unlike = (self.unlike or 0) + int((advantage != recorded).sum())
            gap = np.abs(advantage - recorded)
            self.unlike_by = max(self.unlike_by, float(np.nan_to_num(gap).max(initial=0.0)))

    @property
    def mean(self) -> float:
        """Mean |advantage|."""
        return self._total / max(self.steps, 1)


class Agreement:
    """All methods, and all pairs of them, over the updates added."""

    def __init__(self, names: Sequence[str]) -> None:
        """Starts empty, with the methods in the order of `names`."""
        self.methods = [MethodCounts(name) for name in names]
        self.pairs = [Pair(a, b) for a, b in combinations(names, 2)]

    def add(self, advantages: np.ndarray, recorded: np.ndarray | None) -> None:
        """Adds one update.

        Args:
            advantages: float [M, N].
            recorded: float [N], None if there is none.
        """
        for counted, advantage in zip(self.methods, advantages, strict=True):
            counted.add(advantage, recorded)
        for pair, (a, b) in zip(self.pairs, combinations(advantages, 2), strict=True):
            pair.add(a, b)
