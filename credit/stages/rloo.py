"""RLOO: the outcome against the mean of the others in the group."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from configs.params import param
from credit.base import Estimator
from credit.signals import Context, Estimated, Signals
from credit.statistics import GROUP_METRICS, UNITS, centre, group_metrics, unit_weight
from credit.table import StepTable


@dataclass(frozen=True)
class RLOO(Estimator):
    """A_i = n / (n - 1) (s_i - mean_g), the score less the mean of the other n - 1 members of group g.

    arXiv 2402.14740, section 3. s_i as in GRPO. Departures from the public code (verl-agent): n counts
    trajectories, not rows; a group's only member gets 0, not its raw score. `unit: rows` and `lone: raw`
    bring it back.
    """

    unit: str = param("trajectories", "what has one vote in the mean", choices=UNITS)
    lone: str = param("zero", "advantage of a group's only unit: 0 or its own score", choices=("zero", "raw"))

    metrics_doc = GROUP_METRICS

    def estimate(self, table: StepTable, signals: Signals, context: Context) -> Estimated:
        group = table.group_index
        deviation, n, _ = centre(signals.score, group, unit_weight(table, self.unit))
        advantage = (n / np.maximum(n - 1, 1))[group] * deviation
        advantage = np.where(n[group] == 1, signals.score if self.lone == "raw" else 0.0, advantage)
        return Estimated(advantage, group_metrics(table, signals.score))
