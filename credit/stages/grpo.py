"""GRPO and Dr.GRPO: the outcome compared inside the group."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from configs.params import param
from credit.base import Estimator
from credit.signals import Context, Estimated, Signals
from credit.statistics import GROUP_METRICS, UNITS, group_metrics, normalise, normalise_float32, unit_weight
from credit.table import StepTable


@dataclass(frozen=True)
class GRPO(Estimator):
    """A_i = (s_i - mean_g) / (std_g + eps), sample standard deviation, over the group g of row i.

    s_i is the trajectory's outcome less row i's penalty. GRPO: arXiv 2402.03300, section 4.1; Dr.GRPO, arXiv
    2503.20783: `norm: mean` (A_i = s_i - mean_g), with the loss aggregation `seq-mean-token-sum-norm`.

    Departures from the public code (verl-agent): statistics weigh trajectories equally, not rows; a group's
    only member gets 0, not its raw score; equal scores give exactly 0. `unit: rows` and `lone: raw` bring
    its behaviour back. With penalties, `trajectories` takes mean and variance of all rows, each with weight
    1/T.
    """

    norm: str = param("mean_std", "divide by the standard deviation or not", choices=("mean_std", "mean"))
    unit: str = param("trajectories", "what has one vote in mean and standard deviation", choices=UNITS)
    lone: str = param("zero", "advantage of a group's only unit: 0 or its own score", choices=("zero", "raw"))
    eps: float = param(1e-6, "added to the standard deviation", low=0)
    fp32_reference_compat: bool = param(
        False, "float32 statistics as in the public code, spurious ties included"
    )

    metrics_doc = GROUP_METRICS

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.fp32_reference_compat and self.unit == "trajectories":
            raise ValueError(
                "credit.grpo.fp32_reference_compat: the reference has no unit 'trajectories'; "
                "set unit to rows or first_row, or fp32_reference_compat to false"
            )

    @classmethod
    def like(cls, stage: Any, **changes: Any) -> GRPO:
        """Returns GRPO with the options of a stage that has the same ones, as an outcome term of its own."""
        return cls(**{option.name: getattr(stage, option.name) for option in fields(cls)} | changes)

    def estimate(self, table: StepTable, signals: Signals, context: Context) -> Estimated:
        score, group, weight = signals.score, table.group_index, unit_weight(table, self.unit)
        function = normalise_float32 if self.fp32_reference_compat else normalise
        advantage = function(score, group, weight, ddof=1 if self.norm == "mean_std" else None, eps=self.eps)
        only = np.rint(np.bincount(group, weight))[group] == 1
        raw = score / (1 + self.eps) if self.norm == "mean_std" else score
        advantage = np.where(only, raw if self.lone == "raw" else 0.0, advantage)
        advantage = np.where(table.votes, advantage, 0.0)
        return Estimated(advantage, group_metrics(table, score))
