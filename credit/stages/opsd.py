"""OPSD: beside the policy loss, distil every token from a teacher that knows more."""

from __future__ import annotations

from dataclasses import dataclass

from configs.params import param
from credit.base import AuxLoss
from credit.parts.teacher_gaps import GAP_METRICS, Gaps, ReadsTeacher, teacher_param
from credit.signals import Context, Signals, Weighted
from credit.table import StepTable


@dataclass(frozen=True)
class OPSD(ReadsTeacher, AuxLoss):
    """L += sum_i agg_i w_i (logp_teacher_i - logp_now_i),  w_i = coef, tokens i with a teacher.

    On-policy self-distillation as an ungated addition to GRPO, a baseline of arXiv 2605.15155 (SDAR). The
    teacher is a constant to the gradient. Without a teacher w = 0.

    Mind what that means: the term is an estimate of the reverse KL to the teacher, but with constant weights
    its gradient is that of -logp_now alone, which is 0 in expectation over what the policy samples, whatever
    the teacher says. `weight: gap` has w_i = coef gap_i instead, the score-function gradient of that KL
    (not in the paper).

    NOT RECOVERABLE from the papers; the default, and why:
        coef      0.01, SDAR's own; its public script for this baseline keeps SDAR's gate with slope 0, which
                  makes 0.005
        teacher   a skill text there; a successful sibling here
    """

    teacher: str = teacher_param("peer")
    coef: float = param(0.01, "weight of the distillation term", low=0)
    weight: str = param(
        "constant", "the paper's, or the gap: the gradient of the KL", choices=("constant", "gap")
    )

    metrics_doc = GAP_METRICS

    def weigh(self, table: StepTable, signals: Signals, context: Context) -> Weighted:
        gaps = Gaps.of(table, self.teacher)
        weight = gaps.gap if self.weight == "gap" else gaps.known
        return Weighted(self.coef * weight, gaps.metrics())
