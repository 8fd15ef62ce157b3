"""AgentOPSD: steps at which the belief in success moves get more of the credit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from configs.params import param
from credit.parts.discounting import discounted_returns
from credit.parts.teacher_gaps import WEIGHT_COLUMNS, Gaps, WeighsByTeacher, mixed, sigmoid, teacher_param
from credit.parts.token_rows import per_row, scaled
from credit.signals import Context, Estimated, Signals
from credit.statistics import normalise
from credit.table import StepTable


@dataclass(frozen=True)
class AgentOPSD(WeighsByTeacher):
    """A~_k = A_k ((1 - lam) + lam w_k),  w_k = clip(1 + b z_k, 1 - b, 1 + b), steps k of a trajectory.

        e_k = sum over the step's tokens of gap,    c_k = gamma c_{k-1} + e_k,    c_{-1} = 0
        B_k = sigmoid(logit(p) + c_k),    p = share of successes in the group, within [floor, 1 - floor]
        q_k = sign(A_k) (B_k - B_{k-1}),    z_k = (q_k - mean q) / (std q + eps)  within the trajectory

    arXiv 2608.05987, from a third party's description; no code was found. Departures and readings: the
    standard deviation is that of the population; equal q give z = 0 exactly; a step without a teacher has
    e = 0 and w = 1. The description does not name the teacher's context; c is evidence for success only if
    the teacher has read one, so the default is `peer`.
    """

    teacher: str = teacher_param("peer")
    lam: float = param(0.5, "share of the teacher in the weight", low=0, high=1)
    clip: float = param(0.2, "b: weight of z, and how far w may leave 1", low=0, high=1)
    gamma: float = param(0.95, "how much of the evidence is kept from step to step", low=0, high=1)
    floor: float = param(1e-3, "least and most belief before the first step", low=1e-12, high=0.5)
    eps: float = param(1e-6, "added to the standard deviation", low=0)

    columns_doc = WEIGHT_COLUMNS | {"belief": "B, belief in success after the step"}

    def reweight(self, table: StepTable, signals: Signals, context: Context) -> Estimated:
        gaps = Gaps.of(table, self.teacher)
        start = table.trajectory_start
        # the sum runs forward in time: a discounted return of the rows in reverse
        evidence = discounted_returns(gaps.row_sum(gaps.gap)[::-1], (len(table) - start)[::-1], self.gamma)
        prior = self._prior(table)
        belief = sigmoid(prior + evidence[::-1])
        before = np.concatenate([[0.0], belief[:-1]])[: len(table)]
        before = np.where(table.t == 0, sigmoid(prior), before)
        moved = np.sign(per_row(table, signals.advantage)) * (belief - before)
        z = normalise(moved, table.trajectory_index, table.votes.astype(np.float64), ddof=0, eps=self.eps)
        weight = np.clip(1.0 + self.clip * z, 1.0 - self.clip, 1.0 + self.clip)
        weight = np.where(gaps.known_rows, weight, 1.0)
        metrics, columns = gaps.report(weight[gaps.row])
        advantage = scaled(table, signals.advantage, mixed(weight, self.lam))
        return Estimated(advantage, metrics, columns | {"belief": belief})

    def _prior(self, table: StepTable) -> np.ndarray:
        """float [N]: logit of the group's share of successes."""
        first = table.trajectory_start[:-1][table.trajectory_votes]
        group, groups = table.group_index[first], int(table.group_index.max(initial=-1)) + 1
        members = np.bincount(group, minlength=groups)
        rate = np.bincount(group, table.success[first], minlength=groups) / np.maximum(members, 1)
        rate = np.clip(rate, self.floor, 1.0 - self.floor)
        return (np.log(rate) - np.log1p(-rate))[table.group_index]
