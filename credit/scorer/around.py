"""What goes around a scorer: each wrapper is a scorer itself, and none but the budget changes a score."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from hashlib import blake2b
from typing import Any

import numpy as np

from credit.scorer.base import ModelScorer, Pairs, PairScorer

BELOW_ONE = float(np.nextafter(1.0, 0.0))
"""Largest score of two texts that differ, where equal ones score 1 by definition."""


@dataclass
class Account:
    """What became of the tokens of the pairs asked since `clear`: their sum is that of scoring each pair.

    Attributes:
        scored: read by the model.
        dedupe: of pairs (or, for a bi-encoder, texts) that were read for another pair already.
        identical: of pairs of equal texts, known to score 1.
        cache: of pairs whose score was remembered, from an earlier update or run.
        budget: of pairs that the budget left out.
        padding: computed beside `scored`, not part of the sum.
        model_pairs: pairs sent to the model.
        budget_pairs: pairs that the budget left out.
        seconds: spent in the model.
    """

    scored: int = 0
    dedupe: int = 0
    identical: int = 0
    cache: int = 0
    budget: int = 0
    padding: int = 0
    model_pairs: int = 0
    budget_pairs: int = 0
    seconds: float = 0.0

    def clear(self) -> None:
        """Starts anew, with a new update."""
        for field in fields(self):
            setattr(self, field.name, field.default)


class Around:
    """A scorer around a model's scorer, which hands on what it does not change."""

    def __init__(self, scorer: Any, account: Account) -> None:
        self.scorer: ModelScorer = scorer
        self.account = account

    @property
    def identity(self) -> str:
        """See `ModelScorer`."""
        return self.scorer.identity

    @property
    def canonical(self) -> Callable[[str], str] | None:
        """See `PairScorer`."""
        return self.scorer.canonical

    def lengths(self, pairs: Pairs) -> np.ndarray:
        """See `ModelScorer`."""
        return self.scorer.lengths(pairs)


def tokens(scorer: Any, pairs: Pairs) -> int:
    """All tokens of the pairs, each scored by itself."""
    return int(scorer.lengths(pairs).sum()) if pairs else 0


class SortedBatches(Around):
    """Batches of pairs of nearly one length, so that little of them is padding.

    The batches depend on the set of pairs alone, not on their order: a model's score moves by rounding with
    the batch it is computed in, and what is compared later must not move with row order.
    """

    def __init__(self, scorer: ModelScorer, account: Account, token_budget: int) -> None:
        if not isinstance(token_budget, int) or token_budget < 1:
            raise ValueError(f"scorer token_budget: got {token_budget!r}, expected a whole number >= 1")
        super().__init__(scorer, account)
        self.token_budget = token_budget

    def score(self, pairs: Pairs) -> np.ndarray:
        """float [len(pairs)]; see `PairScorer`."""
        result = np.zeros(len(pairs))
        lengths = self.lengths(pairs)
        order = sorted(range(len(pairs)), key=lambda i: (-lengths[i], pairs[i]))
        read, padded = self.scorer.tokens_read, self.scorer.tokens_padded
        began = time.perf_counter()
        cut = list(batches(lengths, order, self.token_budget))
        asked = [[pairs[i] for i in batch] for batch in cut]
        together = getattr(self.scorer, "score_batches", lambda some: map(self.scorer.score, some))
        for batch, scores in zip(cut, together(asked), strict=True):
            result[batch] = scores
        if not ((result >= 0) & (result <= 1)).all():
            raise ValueError(
                f"{self.identity}: scores from {result.min()} to {result.max()}, expected [0, 1]; the "
                "model overflows or is no scorer of pairs (try precision=float32)"
            )
        account = self.account
        account.seconds += time.perf_counter() - began
        account.scored += self.scorer.tokens_read - read
        account.dedupe += int(lengths.sum()) - (self.scorer.tokens_read - read)
        account.padding += self.scorer.tokens_padded - padded
        account.model_pairs += len(pairs)
        return result


def batches(lengths: np.ndarray, order: Sequence[int], token_budget: int) -> Iterator[list[int]]:
    """Cuts `order`, longest first, into batches of at most `token_budget` padded tokens.

    Little of a batch is padding, also where there are few items: at most 1/16 of the budget. A batch holds
    one item at the least.
    """
    batch: list[int] = []
    longest = padding = 0
    for i in order:
        length = int(lengths[i])
        if batch and (
            (len(batch) + 1) * longest > token_budget or 16 * (padding + longest - length) > token_budget
        ):
            yield batch
            batch, padding = [], 0
        longest = longest if batch else length
        padding += longest - length
        batch.append(i)
    if batch:
        yield batch


class PairBudget(Around):
    """Asks about so many pairs per update at most; NaN for the others, which is remembered nowhere.

    Which ones are left out follows from their texts (by a hash), so it depends neither on row order nor on
    ids, and favours no step.
    """

    def __init__(self, scorer: Any, account: Account, max_pairs: int) -> None:
        if not isinstance(max_pairs, int) or max_pairs < 1:
            raise ValueError(f"scorer max_pairs: got {max_pairs!r}, expected a whole number, 0 for no limit")
        super().__init__(scorer, account)
        self.max_pairs = max_pairs

    def score(self, pairs: Pairs) -> np.ndarray:
        """float [len(pairs)]; see `PairScorer`."""
        left = max(self.max_pairs - self.account.model_pairs, 0)
        if len(pairs) <= left:
            return self.scorer.score(pairs)
        order = sorted(range(len(pairs)), key=lambda i: (_digest(*pairs[i]), pairs[i]))
        asked, dropped = sorted(order[:left]), order[left:]
        result = np.full(len(pairs), np.nan)
        if asked:
            result[asked] = self.scorer.score([pairs[i] for i in asked])
        self.account.budget += tokens(self, [pairs[i] for i in dropped])
        self.account.budget_pairs += len(dropped)
        return result


def _digest(first: str, second: str) -> bytes:
    return blake2b(f"{len(first)}:{first}{second}".encode(errors="surrogatepass"), digest_size=8).digest()


class UniquePairs:
    """The outermost wrapper: sends each distinct pair to a scorer once, and remembers it.

    Texts of one canonical form score exactly 1 without asking, if the scorer has such a form; others then
    score less than 1 (rounding may say 1). When `capacity` remembered pairs are exceeded, memory starts anew.
    """

    def __init__(
        self, scorer: PairScorer, capacity: int = 500_000, *, account: Account | None = None
    ) -> None:
        """Wraps a scorer.

        Args:
            scorer: any.
            capacity: pairs remembered at most.
            account: where the tokens go, for a model's scorer.
        """
        if capacity < 0:
            raise ValueError(f"UniquePairs.capacity: got {capacity}, expected >= 0 remembered pairs")
        self.scorer = scorer
        self.capacity = capacity
        self.account = account
        self.canonical: Callable[[str], str] | None = getattr(scorer, "canonical", None)
        self._known: dict[tuple[str, str], float] = {}

    def lengths(self, pairs: Pairs) -> np.ndarray:
        """See `ModelScorer`; only where there is an account."""
        return self.scorer.lengths(pairs)

    def score(self, pairs: Pairs) -> np.ndarray:
        """float [len(pairs)]; see `PairScorer`."""
        distinct = list(dict.fromkeys(pairs))
        result = {pair: 1.0 for pair in distinct if self._identical(pair)}
        identical = len(result)
        result |= {pair: self._known[pair] for pair in distinct if pair in self._known}
        asked = [pair for pair in distinct if pair not in result]
        if self.account is not None:
            self._book(pairs, distinct, list(result), identical)
        if asked:
            scores = np.asarray(self.scorer.score(asked), dtype=np.float64)
            if self.canonical is not None:
                scores = np.minimum(scores, BELOW_ONE)
            fresh = dict(zip(asked, scores.tolist(), strict=True))
            result |= fresh
            self._remember({pair: score for pair, score in fresh.items() if not np.isnan(score)})
        values = np.array([result[pair] for pair in pairs], dtype=np.float64)
        # the one NaN that comes from a model's stack is the budget's
        return values if self.account is None else np.where(np.isnan(values), 0.0, values)

    def _identical(self, pair: tuple[str, str]) -> bool:
        return self.canonical is not None and self.canonical(pair[0]) == self.canonical(pair[1])

    def _remember(self, fresh: dict[tuple[str, str], float]) -> None:
        if len(self._known) + len(fresh) > self.capacity:
            self._known = {}
        if len(fresh) <= self.capacity:
            self._known |= fresh

    def _book(self, pairs: Pairs, distinct: Pairs, found: Pairs, identical: int) -> None:
        """`found` holds the pairs not asked, first the `identical` ones, then the remembered."""
        self.account.identical += tokens(self, found[:identical])
        self.account.cache += tokens(self, found[identical:])
        if len(distinct) < len(pairs):
            self.account.dedupe += tokens(self, pairs) - tokens(self, distinct)
