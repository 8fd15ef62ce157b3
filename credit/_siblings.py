"""Trajectories of one group as sequences of step texts, and the similarity of all their pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from credit.base import Context, StepTable
from credit.scorer.base import PairScorer


class TextOptions(Protocol):
    """The part of a stage's parameters that says how a step reads."""

    step_text: str
    filter: str
    max_pair_len: int


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
    def of(cls, table: StepTable, rows: np.ndarray, kept: np.ndarray, options: TextOptions) -> Sibling:
        """The trajectory at these rows, without those not `kept` (or, by option, that repeat a text)."""
        pairs = [(row, step_text(table, row, options)) for row in rows[kept[rows]].tolist()]
        if options.filter == "dedup_exact":
            first = {text: row for row, text in reversed(pairs)}
            pairs = [(row, text) for row, text in pairs if first[text] == row]
        kept_rows = np.array([row for row, _ in pairs], dtype=np.int64)
        return cls(kept_rows, tuple(text for _, text in pairs), len(rows))


def step_text(table: StepTable, row: int, options: TextOptions) -> str:
    """The text of a step, at most max_pair_len // 2 words; too long an observation loses its beginning."""
    observation, action, anchor = table.observation[row], table.action[row], table.anchor[row]
    text = options.step_text.format(observation=observation, action=action, anchor=anchor)
    excess = len(text.split()) - options.max_pair_len // 2
    if excess <= 0:
        return text
    observation = " ".join(observation.split()[excess:])
    text = options.step_text.format(observation=observation, action=action, anchor=anchor)
    return " ".join(text.split()[: options.max_pair_len // 2]) if not observation else text


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


@dataclass(frozen=True, eq=False)
class PairScores:
    """Similarity of step pairs, each distinct text pair scored once.

    Attributes:
        code: text to number.
        keys: int [U], sorted, one for each distinct (reference text, failed text).
        values: float [U].
        compared: pairs before removing equal ones.
    """

    code: dict[str, int]
    keys: np.ndarray
    values: np.ndarray
    compared: int

    @property
    def unique(self) -> int:
        return len(self.keys)

    @classmethod
    def of(
        cls, families: Sequence[tuple[Sibling, Sibling]], scorer: PairScorer, symmetrize: bool
    ) -> PairScores:
        """Score every step of each first sibling against every step of its second, in one call of the scorer.

        Raises:
            ValueError: if the scorer does not give one number in [0, 1] a pair.
        """
        code: dict[str, int] = {}
        for text in (text for family in families for sibling in family for text in sibling.texts):
            code.setdefault(text, len(code))
        blocks = [_keys(code, reference, failed).ravel() for reference, failed in families]
        keys = np.unique(np.concatenate(blocks)) if blocks else np.zeros(0, dtype=np.int64)
        texts = list(code)
        pairs = [(texts[key // len(code)], texts[key % len(code)]) for key in keys.tolist()]
        values = _scored(scorer, pairs)
        if symmetrize:
            values = (values + _scored(scorer, [(b, a) for a, b in pairs])) / 2
        return cls(code, keys, values, sum(len(block) for block in blocks))

    def matrix(self, reference: Sibling, failed: Sibling) -> np.ndarray:
        """M, float [m, l]: reference steps by failed steps."""
        return self.values[np.searchsorted(self.keys, _keys(self.code, reference, failed))]

    def affinity(self, reference: Sibling, failed: Sibling) -> float:
        """mean_v max_u M[u, v]; 0 if either side is empty."""
        matrix = self.matrix(reference, failed)
        return float(matrix.max(axis=0).mean()) if matrix.size else 0.0


def _keys(code: dict[str, int], reference: Sibling, failed: Sibling) -> np.ndarray:
    u = np.array([code[text] for text in reference.texts], dtype=np.int64)
    v = np.array([code[text] for text in failed.texts], dtype=np.int64)
    return u[:, None] * len(code) + v[None, :]


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
