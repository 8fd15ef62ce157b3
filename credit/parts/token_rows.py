"""Advantages per row and per token: the layout of one turned into that of the other.

A stage that works per row may follow one that works per token, and the other way round; with these functions
neither has to ask what it was handed.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from credit.signals import Advantage, PerToken
from credit.table import StepTable


def token_rows(table: StepTable) -> np.ndarray:
    """int [sum(length)]: the row of each token."""
    return np.repeat(np.arange(len(table)), table.length)


def per_token(table: StepTable, advantage: Advantage) -> np.ndarray:
    """float [sum(length)]: the advantage of each token, its row's where it is one per row."""
    return advantage.values if isinstance(advantage, PerToken) else advantage[token_rows(table)]


def per_row(table: StepTable, advantage: Advantage) -> np.ndarray:
    """float [N]: the advantage of each row, the mean over its tokens where it is one per token."""
    if not isinstance(advantage, PerToken):
        return advantage
    sums = np.bincount(token_rows(table), advantage.values, minlength=len(table))
    return sums / np.maximum(table.length, 1)


def alike(
    table: StepTable, advantage: Advantage, work: Callable[..., np.ndarray], *rows: np.ndarray
) -> Advantage:
    """work(advantage, *rows), per token where the advantage is: each of `rows` [N] is laid out as it is."""
    if not isinstance(advantage, PerToken):
        return work(advantage, *rows)
    of = token_rows(table)
    return PerToken(work(advantage.values, *(values[of] for values in rows)))


def scaled(table: StepTable, advantage: Advantage, factor: np.ndarray) -> Advantage:
    """An advantage times a factor [N]."""
    return alike(table, advantage, np.multiply, factor)


def added(table: StepTable, advantage: Advantage, term: np.ndarray) -> Advantage:
    """An advantage plus a term [N]."""
    return alike(table, advantage, np.add, term)
