"""How much a teacher that knows more prefers what was sampled, and weights made of that.

    gap_i = logp_teacher_i - logp_sampled_i,    i a response token

Both are of the same weights, so that the gap is the context's alone: `rl.probes.probes` sees to it.
The teacher is the policy itself with privileged text in its context: a successful sibling (`peer`), or the
trajectory's own outcome and final state (`hindsight`). Where it had no such context, its column holds NaN:
the gap is 0 there and the weight 1. A segment is one row: the whole response of a step, since the table
does not know which of its tokens spell the action.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from configs.params import param
from credit.base import Reweighter
from credit.parts.token_rows import token_rows
from credit.table import StepTable

MAX_EXPONENT = 50.0
"""exp and sigmoid are taken within this range: beyond it every weight in use is at its bound."""

GAP_METRICS = {
    "teacher_fraction": "share of response tokens for which there is a teacher",
    "gap_mean": "mean gap over them, nats",
    "gap_abs_mean": "mean |gap| over them, nats",
}
WEIGHT_METRICS = GAP_METRICS | {"weight_change": "mean |w - 1| over them, before mixing"}
WEIGHT_COLUMNS = {
    "gap": "mean gap over the row's tokens, nats",
    "weight": "mean weight over the row's tokens, before mixing",
}


def teacher_param(default: str) -> Any:
    """The option `teacher`: whose log-probabilities a stage reads."""
    doc = "whose text the teacher reads: a successful sibling's, or how this trajectory ended"
    return param(default, doc, choices=("peer", "hindsight"))


class ReadsTeacher:
    """The token columns of a stage with an option `teacher`, made by `teacher_param`."""

    teacher: str

    @property
    def token_columns(self) -> frozenset[str]:
        """The sampler's log-probabilities and the chosen teacher's."""
        return frozenset({"logp_sampled", f"logp_{self.teacher}"})


class WeighsByTeacher(ReadsTeacher, Reweighter):
    """A reweighter whose weights are made of gaps, and who reports them by `Gaps.report`."""

    metrics_doc = WEIGHT_METRICS
    columns_doc = WEIGHT_COLUMNS


@dataclass(frozen=True, eq=False)
class Gaps:
    """Gaps of a table's tokens.

    Attributes:
        gap: float [sum(length)], 0 where there is no teacher.
        known: bool [sum(length)], whether there is one.
        row: int [sum(length)], the row of each token.
        length: int [N], tokens of each row.
    """

    gap: np.ndarray
    known: np.ndarray
    row: np.ndarray
    length: np.ndarray

    @classmethod
    def of(cls, table: StepTable, teacher: str) -> Gaps:
        """Gaps of the teacher `peer` or `hindsight`.

        Raises:
            ValueError: a log-probability that is infinite, or NaN where it is the sampler's.
        """
        sampled, taught = table.tokens["logp_sampled"], table.tokens[f"logp_{teacher}"]
        for name, bad in (("logp_sampled", ~np.isfinite(sampled)), (f"logp_{teacher}", np.isinf(taught))):
            if bad.any():
                raise ValueError(
                    f"StepTable.tokens[{name!r}]: token {np.flatnonzero(bad)[0]} is "
                    f"{table.tokens[name][bad][0]}, expected a finite log-probability"
                    + ("" if name == "logp_sampled" else " or NaN where there is no teacher")
                )
        known = ~np.isnan(taught)
        gap = np.where(known, taught - sampled, 0.0)
        return cls(gap, known, token_rows(table), table.length)

    def row_sum(self, values: np.ndarray) -> np.ndarray:
        """float [N]: the sum of a token column over each row."""
        return np.bincount(self.row, values, minlength=len(self.length))

    def row_mean(self, values: np.ndarray) -> np.ndarray:
        """float [N]: the mean of a token column over each row, 0 in rows without tokens."""
        return self.row_sum(values) / np.maximum(self.length, 1)

    @cached_property
    def known_rows(self) -> np.ndarray:
        """bool [N]: rows with a token that has a teacher."""
        return self.row_sum(self.known) > 0

    def metrics(self) -> dict[str, float]:
        """`GAP_METRICS`; nothing of a table without tokens."""
        if not len(self.gap):
            return {}
        count = max(int(self.known.sum()), 1)
        return {
            "teacher_fraction": float(self.known.mean()),
            "gap_mean": float(self.gap.sum() / count),
            "gap_abs_mean": float(np.abs(self.gap).sum() / count),
        }

    def report(self, weight: np.ndarray) -> tuple[dict[str, float], dict[str, np.ndarray]]:
        """`WEIGHT_METRICS` and `WEIGHT_COLUMNS` of weights [sum(length)]."""
        metrics = self.metrics()
        if metrics:
            change = np.abs(weight - 1.0)[self.known].sum()
            metrics["weight_change"] = float(change / max(int(self.known.sum()), 1))
        return metrics, {"gap": self.row_mean(self.gap), "weight": self.row_mean(weight)}


def mixed(weight: np.ndarray, lam: float) -> np.ndarray:
    """(1 - lam) + lam w, written so that w = 1 or lam = 0 give exactly 1."""
    return 1.0 + lam * (weight - 1.0)


def bounded_exp(exponent: np.ndarray, clip: float) -> np.ndarray:
    """clip(exp(x), 1 - clip, 1 + clip)."""
    return np.clip(np.exp(np.clip(exponent, -MAX_EXPONENT, MAX_EXPONENT)), 1.0 - clip, 1.0 + clip)


def sigmoid(x: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-x)), never exactly 0."""
    return 1.0 / (1.0 + np.exp(-np.clip(x, -MAX_EXPONENT, MAX_EXPONENT)))


def rebalanced(weight: np.ndarray, unit: np.ndarray, share: np.ndarray, counted: np.ndarray) -> np.ndarray:
    """Weights with mean 1 in each unit.

        w~_i = w_i sum_{j in u(i)} s_j / sum_{j in u(i)} s_j w_j    over counted j;    w~_i = 1 if not counted

    Args:
        weight: float [M], > 0.
        unit: int [M], 0..U-1.
        share: float [M], s.
        counted: bool [M].
    """
    share = np.where(counted, share, 0.0)
    budget = np.bincount(unit, share)
    spent = np.bincount(unit, share * weight)
    factor = np.divide(budget, spent, out=np.ones(len(budget)), where=spent > 0)
    return np.where(counted, weight * factor[unit], 1.0)
