"""StepOPSD: a teacher with hindsight moves credit between the tokens of a step, whose total is fixed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from configs.params import param
from credit.parts.teacher_gaps import (
    WEIGHT_COLUMNS,
    Gaps,
    WeighsByTeacher,
    bounded_exp,
    mixed,
    rebalanced,
    teacher_param,
)
from credit.parts.token_rows import per_token
from credit.signals import Context, Estimated, PerToken, Signals
from credit.table import StepTable


@dataclass(frozen=True)
class StepOPSD(WeighsByTeacher):
    """A~_i = A_i ((1 - lam) + lam w~_i), tokens i of step k.

        w_i = clip(exp(sign(A_i) gap_i / l), 1 - clip, 1 + clip),    w~_i = w_i / mean_{j in k} w_j

    arXiv 2605.27140. The mean of w~ over a step's tokens is 1: each step keeps its budget of credit, and
    the sign of A never changes. Tokens without a teacher keep w~ = 1 and are not in the mean.

    NOT RECOVERABLE (only the abstract was found, no code); the default, and why:
        w           the abstract says sign-preserving shaping from token gaps with a trust region: the clipped
                    exponential of its relatives
        temper      l, the scale of a gap: `mean_length` is the mean number of tokens per step of the table,
                    so that gaps act as parts of a whole step's evidence; `step_length` takes the step's own
                    number, `none` is 1
        clip, lam   alpha_clip and lambda_mix there: a smaller clip was the steadier, the best lam depends on
                    the task. 0.2 for both; another paper's rerun had lam 0.2 and 0.05
        segment     "action-centred"; the whole response here
    """

    teacher: str = teacher_param("hindsight")
    lam: float = param(0.2, "share of the teacher in the weight", low=0, high=1)
    clip: float = param(0.2, "how far w may leave 1, before the step's budget", low=0, high=1)
    temper: str = param("mean_length", "scale of a gap", choices=("mean_length", "step_length", "none"))

    columns_doc = {"gap": WEIGHT_COLUMNS["gap"], "spread": "standard deviation of w~ over the row's tokens"}

    def reweight(self, table: StepTable, signals: Signals, context: Context) -> Estimated:
        gaps = Gaps.of(table, self.teacher)
        advantage = per_token(table, signals.advantage)
        length = gaps.length[gaps.row]
        if self.temper != "step_length":
            # over steps that have tokens: an empty response is no evidence
            told = gaps.length[(gaps.length > 0) & table.votes]
            length = told.mean() if self.temper == "mean_length" and len(told) else 1
        weight = bounded_exp(np.sign(advantage) * gaps.gap / length, self.clip)
        weight = rebalanced(weight, gaps.row, np.ones(len(weight)), gaps.known)
        metrics, columns = gaps.report(weight)
        spread = np.sqrt(gaps.row_mean((weight - 1.0) ** 2))
        return Estimated(
            PerToken(advantage * mixed(weight, self.lam)),
            metrics,
            {"gap": columns["gap"], "spread": spread},
        )
