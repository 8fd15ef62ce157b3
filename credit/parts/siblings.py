"""For SCPO: trajectories of one group as sequences of step texts, and how alike the steps of two of them are.

A similarity may cost a model's forward pass, so each distinct pair of texts is scored once at most, and only
when `credit.parts.matching` asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from credit.parts.matching import Layout, reduce
from credit.scorer.base import PairScorer
from credit.signals import Context
from credit.table import StepTable

PAIR_METRICS = {
    "scored_pairs": "step pairs compared, before removing equal ones",
    "unique_pairs": "distinct text pairs sent to the scorer",
    # the others are there for scorers with a model
    "tokens_naive": "tokens of all step pairs compared, each read by itself",
    "tokens_scored": "tokens that the model read; with the saved ones it makes tokens_naive",
    "tokens_padding": "padding computed beside them",
    "tokens_saved_rule": "tokens of pairs that the rule could not have credited",
    "tokens_saved_identical": "tokens of pairs of equal texts, where those score 1 by definition",
    "tokens_saved_dedupe": "tokens of pairs (bi-encoders: texts) read for another pair of the update",
    "tokens_saved_cache": "tokens of pairs remembered from an earlier update or run",
    "tokens_saved_budget": "tokens of pairs beyond scorer.options.max_pairs, which go without credit",
    "pairs_over_budget": "pairs beyond scorer.options.max_pairs; above 0 the credit is incomplete",
    "scorer_seconds": "time in the scorer's model",
}
"""What `PairScores.metrics` reports."""


@dataclass(frozen=True, eq=False)
class Sibling:
    """One trajectory.

    Attributes:
        rows: int [m], table rows of the steps that take part in matching, in time order.
        texts: their texts.
        length: number of all its steps.
    """

    rows: np.ndarray
    texts: tuple[str, ...]
    length: int

    @classmethod
    def of(cls, rows: np.ndarray, kept: np.ndarray, texts: np.ndarray, *, once: bool) -> Sibling:
        """The trajectory at these rows; `kept` ones take part, with `once` only the first of equal texts."""
        pairs = [(row, texts[row]) for row in rows[kept[rows]].tolist()]
        if once:
            first = {text: row for row, text in reversed(pairs)}
            pairs = [(row, text) for row, text in pairs if first[text] == row]
        kept_rows = np.array([row for row, _ in pairs], dtype=np.int64)
        return cls(kept_rows, tuple(text for _, text in pairs), len(rows))


def step_texts(table: StepTable, step_text: str, max_pair_len: int) -> np.ndarray:
    """str [N]: the text of each step.

    Args:
        table: canonical.
        step_text: a template with any of {observation}, {action} and {anchor}.
        max_pair_len: words of two texts together; a text has half of them at most.
    """
    made: dict[tuple[str, str, str], str] = {}
    result = np.empty(len(table), dtype=object)
    for row, step in enumerate(zip(table.observation, table.action, table.anchor, strict=True)):
        if step not in made:
            made[step] = _step_text(*step, step_text, max_pair_len // 2)
        result[row] = made[step]
    return result


def _step_text(observation: str, action: str, anchor: str, step_text: str, limit: int) -> str:
    """One step's text of at most `limit` words; too long an observation loses its beginning."""
    text = step_text.format(observation=observation, action=action, anchor=anchor)
    if len(text) < 2 * limit:  # too short for more words than that
        return text
    excess = len(text.split()) - limit
    if excess <= 0:
        return text
    observation = " ".join(observation.split()[excess:])
    text = step_text.format(observation=observation, action=action, anchor=anchor)
    return " ".join(text.split()[:limit]) if not observation else text


def rank_references(successes: Sequence[Sibling], select: str, context: Context) -> list[Sibling]:
    """Candidates for the reference: one, or for `best_similarity` all, longest first.

    Ties in length are broken by the texts, so that neither ids nor row order can decide.
    """
    ranked = sorted(successes, key=lambda s: (-s.length, s.texts))
    if select == "best_similarity":
        return ranked
    if select == "shortest":
        return [min(ranked, key=lambda s: s.length)]
    if select == "random":
        rng = context.rng("scpo/reference/" + "\n".join(text for s in ranked for text in s.texts))
        return [ranked[rng.integers(len(ranked))]]
    return ranked[:1]


class PairScores:
    """Similarities of step pairs: each distinct text pair is scored once at most, and only when asked for.

    Attributes:
        layout: one matrix for each (reference, failed) pair of trajectories.
    """

    def __init__(
        self, families: Sequence[tuple[Sibling, Sibling]], scorer: PairScorer, symmetrize: bool
    ) -> None:
        """Prepares every step of each first sibling against every step of its second; scores nothing yet."""
        self._scorer, self._symmetrize, self._asked = scorer, symmetrize, 0
        self._account = getattr(scorer, "account", None)
        if self._account is not None:
            self._account.clear()
        canonical = getattr(scorer, "canonical", None)
        siblings = {id(sibling): sibling for family in families for sibling in family}
        code, self._texts = _text_codes(siblings.values(), canonical)
        codes = {k: np.array([code[t] for t in s.texts], dtype=np.int64) for k, s in siblings.items()}
        n = len(self._texts)
        blocks = [(codes[id(failed)][:, None] + n * codes[id(r)]).ravel() for r, failed in families]
        keys = np.concatenate(blocks) if blocks else np.zeros(0, dtype=np.int64)
        self._keys, self._pair, self._times = np.unique(keys, return_inverse=True, return_counts=True)
        self._identical = (self._keys // max(n, 1) == self._keys % max(n, 1)) & (canonical is not None)
        self._values = np.where(self._identical, 1.0, np.nan)
        self.layout = Layout(
            *(np.array([len(f[side].texts) for f in families], dtype=np.int64) for side in (0, 1))
        )

    def __len__(self) -> int:
        """Step pairs, before removing equal ones."""
        return len(self._pair)

    def read(self, entries: np.ndarray) -> np.ndarray:
        """See `credit.parts.matching.Similarities`."""
        return self._values[self._pair[entries]]

    def identical(self, entries: np.ndarray) -> np.ndarray:
        """See `credit.parts.matching.Similarities`."""
        return self._identical[self._pair[entries]]

    def fetch(self, entries: np.ndarray) -> None:
        """See `credit.parts.matching.Similarities`.

        Raises:
            ValueError: if the scorer does not give one number in [0, 1] a pair.
        """
        wanted = np.zeros(len(self._keys), dtype=bool)
        wanted[self._pair[entries]] = True
        wanted = np.flatnonzero(wanted & np.isnan(self._values))
        if not len(wanted):
            return
        pairs = self._pairs(wanted)
        values = _scored(self._scorer, pairs)
        if self._symmetrize:
            values = (values + _scored(self._scorer, [(b, a) for a, b in pairs])) / 2
        self._values[wanted] = values
        self._asked += len(pairs)

    def affinity(self) -> np.ndarray:
        """float [F]: mean_v max_u M[u, v] of each matrix, 0 if it is empty."""
        layout = self.layout
        f, v = layout.columns(np.arange(len(layout.widths)))
        heights = layout.heights[f]
        entries = np.arange(len(self))
        open_ = ~np.repeat(reduce(np.logical_or, self.identical(entries), heights, False), heights)
        self.fetch(entries[open_])
        best = reduce(np.maximum, np.nan_to_num(self.read(entries)), heights, 0.0)
        return reduce(np.add, best, layout.widths, 0.0) / np.maximum(layout.widths, 1)

    def most_alike(self, candidates: Sequence[int]) -> np.ndarray:
        """int [n]: the matrix of highest affinity for each failed trajectory, the first of equals.

        Args:
            candidates: how many matrices failed trajectory 0, 1, … has, one after the other.
        """
        first = np.cumsum([0, *candidates])[:-1]
        if all(count == 1 for count in candidates):
            return first
        affinity = self.affinity()
        return np.array([k + affinity[k : k + n].argmax() for k, n in zip(first, candidates, strict=True)])

    def metrics(self) -> dict[str, float]:
        """What `PAIR_METRICS` lists."""
        found = {"scored_pairs": float(len(self)), "unique_pairs": float(self._asked)}
        account = self._account
        if account is None:
            return found
        tokens = self._scorer.lengths(self._pairs(np.arange(len(self._keys)))) * (1 + self._symmetrize)
        every, never = tokens * self._times, np.isnan(self._values)
        again = (every - tokens)[~never & ~self._identical]
        return found | {
            "tokens_naive": float(every.sum()),
            "tokens_scored": float(account.scored),
            "tokens_padding": float(account.padding),
            "tokens_saved_rule": float(every[never].sum()),
            "tokens_saved_identical": float(every[self._identical].sum() + account.identical),
            "tokens_saved_dedupe": float(again.sum() + account.dedupe),
            "tokens_saved_cache": float(account.cache),
            "tokens_saved_budget": float(account.budget),
            "pairs_over_budget": float(account.budget_pairs),
            "scorer_seconds": account.seconds,
        }

    def _pairs(self, keys: np.ndarray) -> list[tuple[str, str]]:
        first, second = np.divmod(self._keys[keys], max(len(self._texts), 1))
        return [
            (self._texts[a], self._texts[b]) for a, b in zip(first.tolist(), second.tolist(), strict=True)
        ]


def _text_codes(
    siblings: Iterable[Sibling], canonical: Callable[[str], str] | None
) -> tuple[dict[str, int], list[str]]:
    """A number 0, 1, … for each text, the same for texts of one canonical form; and a text of each number."""
    forms: dict[str, int] = {}
    code: dict[str, int] = {}
    texts: list[str] = []
    for text in dict.fromkeys(text for sibling in siblings for text in sibling.texts):
        code[text] = forms.setdefault(canonical(text) if canonical else text, len(forms))
        if code[text] == len(texts):
            texts.append(text)
    return code, texts


def _scored(scorer: PairScorer, pairs: list[tuple[str, str]]) -> np.ndarray:
    if not pairs:
        return np.zeros(0)
    values = np.asarray(scorer.score(pairs), dtype=np.float64)
    if values.shape != (len(pairs),) or not ((values >= 0) & (values <= 1)).all():
        raise ValueError(
            f"the pair scorer gave shape {values.shape}, range [{values.min()}, {values.max()}]; "
            f"expected ({len(pairs)},) within [0, 1] (sigmoid-normalise logits)"
        )
    return values
