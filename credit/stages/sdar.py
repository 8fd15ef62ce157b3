"""SDAR: beside the policy loss, distil tokens from a teacher through a gate that trusts its preferences."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from configs.params import param
from credit.base import AuxLoss
from credit.parts.teacher_gaps import GAP_METRICS, Gaps, ReadsTeacher, sigmoid, teacher_param
from credit.signals import Context, Signals, Weighted
from credit.table import StepTable


@dataclass(frozen=True)
class SDAR(ReadsTeacher, AuxLoss):
    """L += sum_i agg_i w_i (logp_teacher_i - logp_now_i),  w_i = coef sigmoid(slope gap_i), tokens i.

    arXiv 2605.15155 and its public code, whose settings these are. The gate is near 1 where the teacher
    prefers what was sampled, near 0 where it does not; it is a constant to the gradient, as is the teacher.
    Without a teacher w = 0. `slope: 0` is `opsd` with half the coefficient.

    Departures from the public code: the gate's gap is taken to the policy that sampled, not to the one being
    trained (equal at an update's first optimiser step); the teacher there reads a skill text, here a
    successful sibling by default; a batch is normalised once, not per micro-batch.
    """

    teacher: str = teacher_param("peer")
    coef: float = param(0.01, "weight of the distillation term", low=0)
    slope: float = param(5.0, "how sharp the gate is, per nat of gap", low=0)

    metrics_doc = GAP_METRICS | {
        "gate_mean": "mean gate over tokens with a teacher",
        "gate_open": "share of them with a gate above 1/2",
    }
    columns_doc = {"gate": "mean gate over the row's tokens, 0 without a teacher"}

    def weigh(self, table: StepTable, signals: Signals, context: Context) -> Weighted:
        gaps = Gaps.of(table, self.teacher)
        gate = np.where(gaps.known, sigmoid(self.slope * gaps.gap), 0.0)
        metrics = gaps.metrics()
        if metrics:
            count = max(int(gaps.known.sum()), 1)
            metrics["gate_mean"] = float(gate.sum() / count)
            metrics["gate_open"] = float(np.sum(gate > 0.5) / count)
        return Weighted(self.coef * gate, metrics, {"gate": gaps.row_mean(gate)})
