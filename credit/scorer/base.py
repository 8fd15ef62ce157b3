"""What a pair scorer is, without a model and with one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

Pairs = Sequence[tuple[str, str]]
"""Text pairs to score."""


class PairScorer(Protocol):
    """Similarity of text pairs.

    Attributes:
        canonical: optional; what of a text the score depends on. Two texts of one canonical form score 1
            exactly, any other two less. None (or no such attribute) where the scorer's definition does not
            say so.
    """

    canonical: Callable[[str], str] | None

    def score(self, pairs: Pairs) -> np.ndarray:
        """float [len(pairs)] in [0, 1]; high for the same meaning. The order within a pair may matter."""


class ModelScorer(PairScorer, Protocol):
    """A pair scorer that runs a model; `score` runs all the pairs it gets as one padded batch.

    Attributes:
        identity: the model, its weights and every option that moves a score; scores are kept under it.
        tokens_read: tokens the model has read so far.
        tokens_padded: padding it has computed beside them.
    """

    identity: str
    tokens_read: int
    tokens_padded: int

    def lengths(self, pairs: Pairs) -> np.ndarray:
        """int [len(pairs)]: tokens of each pair, scored by itself."""
