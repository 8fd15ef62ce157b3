"""SHARPO: one bounded weight per step, from how much a teacher who read a success prefers its response."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from configs.params import param
from credit.parts.teacher_gaps import Gaps, WeighsByTeacher, mixed, rebalanced, sigmoid, teacher_param
from credit.parts.token_rows import per_row, scaled
from credit.signals import Context, Estimated, Signals
from credit.table import StepTable


@dataclass(frozen=True)
class SHARPO(WeighsByTeacher):
    """A~_k = A_k ((1 - lam) + lam w~_k), the same for all tokens of step k of trajectory j.

        g_k = mean over the step's tokens of gap,    w_k = 2 sigmoid(sign(A_k) g_k)  in (0, 2)
        w~_k = w_k sum_{m in j} n_m / sum_{m in j} n_m w_m,    n the tokens of a step

    arXiv 2610.00838. The teacher is a copy of the policy with a successful sibling's text in its context.
    The balancing keeps the total weight of a trajectory's tokens, so that credit only moves between its
    steps. Steps without a teacher (a group without another success) keep w~ = 1 and are not in the sums.

    NOT RECOVERABLE (the abstract, a figure's caption and a third party's summary were found, no code); the
    default, and why:
        w            2 sigmoid(g) is the summary's; `sign_aware: false` is that, literally. It would punish a
                     failure's useful steps most, so by default the sign of A enters: what the teacher prefers
                     is reinforced more in a success and punished less in a failure
        balance      "length balancing": `token` as above; `segment` gives each step one vote (n = 1); `none`
        lam          0.2; the paper also reports 0.05, with nearly equal success
        reference    which success the teacher reads is the probe's option, not this stage's
        segment      an "environment-facing segment" is the whole response of a step here
    """

    teacher: str = teacher_param("peer")
    lam: float = param(0.2, "share of the teacher in the weight", low=0, high=1)
    sign_aware: bool = param(True, "a gap counts the other way round where the advantage is negative")
    balance: str = param(
        "token", "what keeps mean weight 1 in a trajectory", choices=("token", "segment", "none")
    )

    def reweight(self, table: StepTable, signals: Signals, context: Context) -> Estimated:
        gaps = Gaps.of(table, self.teacher)
        gap = gaps.row_mean(gaps.gap)
        if self.sign_aware:
            gap = gap * np.sign(per_row(table, signals.advantage))
        weight = np.where(gaps.known_rows, 2.0 * sigmoid(gap), 1.0)
        if self.balance != "none":
            share = gaps.length if self.balance == "token" else np.ones(len(table))
            weight = rebalanced(weight, table.trajectory_index, share, gaps.known_rows & table.votes)
        metrics, columns = gaps.report(weight[gaps.row])
        return Estimated(scaled(table, signals.advantage, mixed(weight, self.lam)), metrics, columns)
