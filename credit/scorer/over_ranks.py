"""Scores pairs on all ranks of a run: credit is computed by the first, but every one has an accelerator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from credit.scorer.base import ModelScorer, Pairs


class Together(Protocol):
    """The processes of a run, as `agent.ranks.Ranks`."""

    rank: int
    size: int

    def gather(self, value: Any) -> list[Any]:
        """Every rank's value, by rank, on every rank."""

    def share(self, value: Any) -> Any:
        """Rank 0's value, on every rank."""


class SharedModel:
    """A `ModelScorer` whose batches are dealt out to the ranks. The first asks, the others `serve`.

    A batch is computed whole, so a score does not depend on who computed it.

    Attributes:
        tokens_read: See `ModelScorer`; of all ranks.
        tokens_padded: See `ModelScorer`; of all ranks.
    """

    def __init__(self, scorer: ModelScorer, ranks: Together) -> None:
        self._scorer, self._ranks = scorer, ranks
        self.tokens_read = self.tokens_padded = 0

    @property
    def identity(self) -> str:
        """See `ModelScorer`."""
        return self._scorer.identity

    @property
    def canonical(self) -> Callable[[str], str] | None:
        """See `PairScorer`."""
        return self._scorer.canonical

    def lengths(self, pairs: Pairs) -> np.ndarray:
        """See `ModelScorer`."""
        return self._scorer.lengths(pairs)

    def score(self, pairs: Pairs) -> np.ndarray:
        """See `ModelScorer`; one batch is one rank's."""
        return self.score_batches([pairs])[0]

    def score_batches(self, batches: Sequence[Pairs]) -> list[np.ndarray]:
        """Scores each batch; on the first rank, while the others `serve`."""
        return self._compute(self._ranks.share(list(batches)))

    def serve(self) -> None:
        """Computes this rank's batches until the first rank says `end`."""
        while (batches := self._ranks.share(None)) is not None:
            self._compute(batches)

    def end(self) -> None:
        """Lets the others go on; on the first rank, when nothing more will be asked for now."""
        self._ranks.share(None)

    def _compute(self, batches: Sequence[Pairs]) -> list[np.ndarray]:
        """Every rank takes every `size`-th batch: they come longest first, so the shares are even."""
        own, size = self._scorer, self._ranks.size
        before = np.array([own.tokens_read, own.tokens_padded])
        mine = [own.score(batch) for batch in batches[self._ranks.rank :: size]]
        counted = np.array([own.tokens_read, own.tokens_padded]) - before
        found: list[np.ndarray] = [np.empty(0)] * len(batches)
        for rank, (scores, tokens) in enumerate(self._ranks.gather((mine, counted))):
            found[rank::size] = scores
            self.tokens_read += int(tokens[0])
            self.tokens_padded += int(tokens[1])
        return found


def shared_model(scorer: Any) -> SharedModel | None:
    """The shared model inside a scorer's wrappers, if there is one."""
    while scorer is not None and not isinstance(scorer, SharedModel):
        scorer = getattr(scorer, "scorer", None)
    return scorer
