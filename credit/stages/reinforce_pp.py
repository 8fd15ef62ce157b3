"""REINFORCE++: the outcome, whitened over all response tokens of the update."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from configs.params import param
from credit.base import Estimator
from credit.signals import Context, Estimated, PerToken, Signals
from credit.statistics import GROUP_METRICS, UNITS, centre, group_metrics, unit_weight
from credit.table import StepTable


def whiten(
    values: np.ndarray, weight: np.ndarray, *, eps: float, count_eps: float = 0.0
) -> tuple[np.ndarray, float]:
    """(x_i - mean) / sqrt(var + eps), sample variance, each value counted `weight` times.

    Args:
        values: float [M].
        weight: float [M], whole numbers; values of weight 0 are not counted and give 0.
        eps: added to the variance.
        count_eps: added to the number of values that sums are divided by, which biases the mean.

    Returns:
        float [M], all 0 if fewer than two values count or all are equal; sqrt(var + eps).
    """
    if weight.sum() < 2:
        return np.zeros(len(values)), 0.0
    deviation, n, squares = centre(values, np.zeros(len(values), dtype=np.int64), weight)
    if count_eps:
        deviation += (values - deviation) * count_eps / (n + count_eps)
        squares = (weight * deviation**2).sum(keepdims=True) * n / (n + count_eps)
    deviation[weight == 0] = 0.0
    scale = float(np.sqrt(squares[0] / (n[0] - 1) + eps))
    return np.divide(deviation, scale, out=np.zeros_like(deviation), where=deviation != 0), scale


@dataclass(frozen=True)
class ReinforcePP(Estimator):
    """A_i = (x_i - mean) / sqrt(var + eps) over all response tokens i of the update, sample variance.

        plain       x_i = gamma^(L - 1 - l) s,    token l of the L response tokens of a row with score s
        baseline    x_i = s - mean_g,             over the group g of the row

    arXiv 2501.03262, section 3 (the baseline variant: its section on groups of responses). s is the
    trajectory's outcome less the row's penalty. Every token has one vote in mean and variance, so that the
    advantages of the update sum to 0 over its tokens; long rows therefore weigh more than short ones. With
    gamma < 1 the advantage is one value per token, else one per row.

    The plain variant compares tasks with each other: a group whose members all fail gets a negative
    advantage where others succeed. In the baseline variant such a group gets what the mean over all tokens
    leaves, 0 only if rows and trajectories are equally long.

    Departures from the public code (verl-agent): the baseline's mean weighs trajectories equally, not rows;
    a group's only member gets 0 and has no vote, not its raw score (`unit: rows` and `lone: raw` bring that
    back); fewer than two tokens give 0, not an error; equal values give exactly 0, which they do not where
    sums are divided by the number of tokens + 1e-8 (`count_eps`).
    """

    variant: str = param("plain", "raw scores, or less the group's mean", choices=("plain", "baseline"))
    gamma: float = param(1.0, "discount per token inside a response, for variant plain", low=0, high=1)
    unit: str = param(
        "trajectories", "what has one vote in the group's mean, for variant baseline", choices=UNITS
    )
    lone: str = param(
        "zero",
        "advantage of a group's only unit, for variant baseline: 0 or from its own score",
        choices=("zero", "raw"),
    )
    eps: float = param(1e-8, "added to the variance", low=0)
    count_eps: float = param(
        0.0, "added to the number of tokens in mean and variance; 1e-8 in the public code", low=0
    )

    metrics_doc = {
        **GROUP_METRICS,
        "scale": "sqrt(variance + eps) that the update's tokens are divided by; 0 with fewer than two",
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.variant == "baseline" and self.gamma != 1:
            raise ValueError(
                f"credit.reinforce_pp.gamma: got {self.gamma} with variant baseline, which has no discount; "
                "leave gamma at 1, or take variant plain"
            )

    def estimate(self, table: StepTable, signals: Signals, context: Context) -> Estimated:
        value, weight = signals.score, table.length * table.votes.astype(np.float64)
        if self.variant == "baseline":
            value, counted = self._less_group_mean(table, value)
            weight = weight * counted
        by_token = self.gamma < 1
        if by_token:
            value = np.repeat(value, table.length) * self.gamma ** _tokens_to_come(table)
            weight = np.repeat(table.votes, table.length).astype(np.float64)
        advantage, scale = whiten(value, weight, eps=self.eps, count_eps=self.count_eps)
        metrics = group_metrics(table, signals.score) | {"scale": scale}
        return Estimated(PerToken(advantage) if by_token else advantage, metrics)

    def _less_group_mean(self, table: StepTable, score: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Score less the group's mean [N], and which rows have a vote, bool [N]."""
        group = table.group_index
        deviation, n, _ = centre(score, group, unit_weight(table, self.unit))
        only = n[group] == 1
        if self.lone == "raw":
            return np.where(only, score, deviation), np.ones(len(table), dtype=bool)
        return deviation, ~only


def _tokens_to_come(table: StepTable) -> np.ndarray:
    """int [sum(length)]: how many tokens of its row follow each token."""
    return np.repeat(table.offsets[1:], table.length) - 1 - np.arange(table.offsets[-1])
