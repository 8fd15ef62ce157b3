"""RLSD: the reward says in which direction to move a token's probability, a teacher how far."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from configs.params import param
from credit.parts.teacher_gaps import WEIGHT_METRICS, Gaps, WeighsByTeacher, bounded_exp, mixed, teacher_param
from credit.parts.token_rows import per_token
from credit.signals import Context, Estimated, PerToken, Signals
from credit.table import StepTable


@dataclass(frozen=True)
class RLSD(WeighsByTeacher):
    """A~_i = A_i ((1 - l_u) + l_u w_i),  w_i = clip(exp(sign(A_i) gap_i), 1 - clip, 1 + clip), tokens i.

        gap_i = logp_teacher_i - logp_sampled_i        l_u = lam max(0, 1 - u / decay), u the update

    Self-Distilled RLVR, arXiv 2604.03128; for agents as a baseline in the public code of SDAR (arXiv
    2605.15155), whose settings these are. What the teacher prefers is reinforced more in a success and
    punished less in a failure; the sign of A never changes. Without a teacher w = 1.

    Departures, and what does not carry over:
        teacher   the paper's reads the reference answer, the code's a skill text; an agent has neither here,
                  so the default is the nearest thing, a successful sibling (`peer`)
        u         the run's updates, from 1; the code counts the same way
        limit     a variant of the code limits the gap to +-5, which the clip on w makes idle
    """

    teacher: str = teacher_param("peer")
    lam: float = param(0.5, "share of the teacher in the weight, at the start", low=0, high=1)
    clip: float = param(0.2, "how far w may leave 1", low=0, high=1)
    decay: int = param(50, "updates until the share is 0, linearly; 0 keeps it", low=0)

    metrics_doc = WEIGHT_METRICS | {"lam": "share of the teacher at this update"}

    def reweight(self, table: StepTable, signals: Signals, context: Context) -> Estimated:
        gaps = Gaps.of(table, self.teacher)
        advantage = per_token(table, signals.advantage)
        weight = bounded_exp(np.sign(advantage) * gaps.gap, self.clip)
        lam = self.lam * (max(0.0, 1.0 - context.step / self.decay) if self.decay else 1.0)
        metrics, columns = gaps.report(weight)
        return Estimated(PerToken(advantage * mixed(weight, lam)), metrics | {"lam": lam}, columns)
