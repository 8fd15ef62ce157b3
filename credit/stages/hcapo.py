"""HCAPO: returns of steps, corrected by how likely the step looks once the end is known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from configs.params import param
from credit.base import Reweighter
from credit.parts.teacher_gaps import GAP_METRICS, MAX_EXPONENT, Gaps, ReadsTeacher, rebalanced, teacher_param
from credit.parts.token_rows import added
from credit.signals import Context, Estimated, Signals, require_returns
from credit.statistics import normalise
from credit.table import StepTable


@dataclass(frozen=True)
class HCAPO(ReadsTeacher, Reweighter):
    """A~_k = A_k + omega M_k,  M_k = (Q_k - mean Q) / (std Q + eps) over the steps of the group.

        h_k = exp(mean over the step's tokens of logp_hindsight / T),    r_k = clip(h_k / p_k, low, high)
        s_k = (1 - smoothing) r_k + smoothing r_{k+1}  (the last step: r_k),    Q_k = s_k R_k

    R is the step's return (`returns` stage) and A the outcome advantage (`grpo`). arXiv 2603.08754, of which
    a third party's summary and a glossary were found; no code. A step without a teacher has r = 1 and M = 0.

    NOT RECOVERABLE; the default, and why:
        ratio       what stands under h: `policy` takes p_k = exp(mean logp_sampled / T), the same quantity
                    without hindsight; `trajectory` the mean of h over the trajectory's steps, a reading of
                    "self-normalised"
        peers       what Q is compared with: the `group`'s steps, or the `trajectory`'s own
        smoothing   0.5 in the summary, over time; read as a share of the next step's ratio, since the
                    glossary spreads credit over adjacent reasoning and action steps; 0 switches it off
        do_no_harm  the glossary: negative signals in successful trajectories are set to 0
        T           5, of the mean log-probability; the tokens are those of the whole response
    """

    teacher: str = teacher_param("hindsight")
    omega: float = param(1.0, "weight of the step term", low=0)
    temperature: float = param(5.0, "T, divides mean log-probabilities", low=1e-6)
    low: float = param(0.8, "least ratio", low=0, high=1)
    high: float = param(1.2, "largest ratio", low=1)
    ratio: str = param("policy", "what h is divided by", choices=("policy", "trajectory"))
    peers: str = param("group", "steps that Q is compared with", choices=("group", "trajectory"))
    smoothing: float = param(0.5, "share of the next step's ratio", low=0, high=1)
    do_no_harm: bool = param(True, "a success's step never loses by the step term")
    eps: float = param(1e-6, "added to the standard deviation", low=0)

    activity = "micro_abs_mean"
    metrics_doc = GAP_METRICS | {
        "ratio_mean": "mean r over steps with a teacher",
        "clipped_fraction": "share of them whose ratio was at a bound",
        "micro_abs_mean": "mean |omega M| over rows",
    }
    columns_doc = {
        "ratio": "r, before smoothing",
        "q": "Q, the corrected return",
        "micro": "M, before omega",
    }

    def reweight(self, table: StepTable, signals: Signals, context: Context) -> Estimated:
        require_returns(signals, "hcapo")
        gaps = Gaps.of(table, self.teacher)
        ratio = self._ratio(table, gaps)
        following = np.append(ratio[1:], 1.0)[: len(table)]
        last = np.append(table.t[1:] == 0, True)[: len(table)]
        smooth = ratio + self.smoothing * (np.where(last, ratio, following) - ratio)
        q = smooth * signals.returns
        peers = table.group_index if self.peers == "group" else table.trajectory_index
        micro = normalise(q, peers, table.votes.astype(np.float64), ddof=1, eps=self.eps)
        harm = self.do_no_harm & table.success & (micro < 0)
        micro = np.where(gaps.known_rows & table.votes & ~harm, micro, 0.0)
        return Estimated(
            added(table, signals.advantage, self.omega * micro),
            self._metrics(gaps, ratio, micro),
            {"ratio": ratio, "q": q, "micro": micro},
        )

    def _ratio(self, table: StepTable, gaps: Gaps) -> np.ndarray:
        """float [N], r; 1 where there is no teacher."""
        if self.ratio == "policy":
            exponent = gaps.row_mean(gaps.gap) / self.temperature
            ratio = np.exp(np.clip(exponent, -MAX_EXPONENT, MAX_EXPONENT))
        else:
            taught = np.where(gaps.known, table.tokens[f"logp_{self.teacher}"], 0.0)
            likely = np.exp(np.clip(gaps.row_mean(taught) / self.temperature, -MAX_EXPONENT, MAX_EXPONENT))
            counted = gaps.known_rows & table.votes
            ratio = rebalanced(likely, table.trajectory_index, np.ones(len(table)), counted)
        return np.where(gaps.known_rows, np.clip(ratio, self.low, self.high), 1.0)

    def _metrics(self, gaps: Gaps, ratio: np.ndarray, micro: np.ndarray) -> dict[str, float]:
        metrics = gaps.metrics()
        known = ratio[gaps.known_rows]
        if len(known):
            metrics["ratio_mean"] = float(known.mean())
            metrics["clipped_fraction"] = float(np.mean((known == self.low) | (known == self.high)))
        if len(micro):
            metrics["micro_abs_mean"] = float(np.abs(self.omega * micro).mean())
        return metrics
