"""EMPG: sure steps learn more, unsure ones less, and a step that leads to a sure one earns a bonus."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from configs.params import param
from credit.base import Reweighter
from credit.parts.token_rows import added, alike, per_row, scaled, token_rows
from credit.signals import Advantage, Context, Estimated, Signals
from credit.statistics import centre
from credit.table import StepTable


@dataclass(frozen=True)
class EMPG(Reweighter):
    """A~_i = A_i g(H_i) + zeta f(H_{i+1}) - mean,  over the rows of groups that have an advantage.

        g(H) = exp(-k H) / mean exp(-k H),    f(H) = exp(-k' H)
        H_i = (h_i - min h) / (max h - min h + eps)

    h_i is the mean entropy of the response tokens of row i (token column `entropy`), i + 1 the next step of
    the same trajectory; the last step has no bonus. Minima, maxima and means are over the rows of the
    update. arXiv 2509.09265.

    Departures: rows of a group whose advantage is 0 throughout (all outcomes equal) are left out of it all
    and keep 0, so that equal rewards teach nothing; `all_groups: true` takes them in as the paper does, which
    rewards sure steps whatever came of them. Statistics are over the update, not a mini-batch. A row without
    response tokens has g = 1 and, for the step before it, no bonus.

    k = 0, zeta = 0 leaves the advantage less its mean. NOT RECOVERABLE: zeta was 0.1 in an older version of
    the paper; the default is the later 0.05.
    """

    k: float = param(1.0, "how much sure steps gain over unsure ones", low=0)
    k_future: float = param(1.0, "k', how fast the bonus falls with the next step's entropy", low=0)
    zeta: float = param(0.05, "weight of the bonus", low=0)
    all_groups: bool = param(False, "also groups without any advantage, as in the paper")
    eps: float = param(1e-8, "added to the range of entropies", low=1e-12)

    metrics_doc = {
        "entropy_mean": "mean h over the rows that take part, nats",
        "entropy_low": "min h over them, nats",
        "entropy_high": "max h over them, nats",
        "scale_low": "smallest g",
        "scale_high": "largest g",
        "part_fraction": "share of rows that take part",
    }
    columns_doc = {
        "entropy": "h, nats; 0 without tokens",
        "scale": "g, 1 for rows that do not take part",
        "bonus": "zeta f, before the mean is subtracted",
    }

    @property
    def token_columns(self) -> frozenset[str]:
        """The entropy of each token's distribution."""
        return frozenset({"entropy"})

    def reweight(self, table: StepTable, signals: Signals, context: Context) -> Estimated:
        part = self._part(table, signals.advantage)
        total = np.bincount(token_rows(table), table.tokens["entropy"], minlength=len(table))
        entropy = total / np.maximum(table.length, 1)
        known = np.flatnonzero(part & (table.length > 0))
        scale, bonus = np.ones(len(table)), np.zeros(len(table))
        metrics = {}
        if len(known):
            low, high = entropy[known].min(), entropy[known].max()
            h = (entropy[known] - low) / (high - low + self.eps)
            scale[known] = np.exp(-self.k * h) / np.exp(-self.k * h).mean()
            later = table.t[known] > 0
            bonus[known[later] - 1] = self.zeta * np.exp(-self.k_future * h[later])
            metrics = {
                "entropy_mean": float(entropy[known].mean()),
                "entropy_low": float(low),
                "entropy_high": float(high),
                "scale_low": float(scale[known].min()),
                "scale_high": float(scale[known].max()),
                "part_fraction": float(part.mean()),
            }
        advantage = added(table, scaled(table, signals.advantage, scale), bonus)
        columns = {"entropy": entropy, "scale": scale, "bonus": bonus}
        return Estimated(alike(table, advantage, _centred, part), metrics, columns)

    def _part(self, table: StepTable, advantage: Advantage) -> np.ndarray:
        """bool [N]: rows that take part."""
        if self.all_groups:
            return table.votes
        alive = per_row(table, alike(table, advantage, _not_zero)) > 0
        return (np.bincount(table.group_index, alive) > 0)[table.group_index] & table.votes


def _centred(advantage: np.ndarray, part: np.ndarray) -> np.ndarray:
    """The advantage less its mean where `part` says so, as it is elsewhere."""
    here = np.flatnonzero(part)
    result = advantage.copy()
    result[here], _, _ = centre(advantage[here], np.zeros(len(here), dtype=np.int64), np.ones(len(here)))
    return result


def _not_zero(advantage: np.ndarray) -> np.ndarray:
    return (advantage != 0).astype(np.float64)
