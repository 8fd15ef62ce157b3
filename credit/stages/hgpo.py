"""HGPO: the step's return among steps with the same recent history, over several depths of history."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from configs.params import param
from credit.base import Estimator
from credit.parts.anchors import history_groups
from credit.signals import Context, Estimated, Signals, require_returns
from credit.stages.grpo import GRPO
from credit.statistics import (
    GROUP_METRICS,
    UNITS,
    group_metrics,
    normalise,
    normalise_float32,
    votes_of,
    without_noise,
)
from credit.table import StepTable


@dataclass(frozen=True)
class HGPO(Estimator):
    """A_i = sum_k w_k a_ik / (sum_k w_k + eps),  w_k = (k + 1)^alpha,  over the k with a_ik != 0.

        a_ik = (R_i - mean) / (std + eps),    k = 1 … min(history, t_i) + 1,

    population mean and standard deviation over the rows of the group with the same last k anchors, row i's
    own included. arXiv 2602.22817. k = 1 is GiGPO's anchor group; deeper levels compare more alike rows
    and weigh more. `norm: mean` drops the division by std. There is no outcome term, unless
    `base_group: true` lets GRPO's advantage join as k = 0 (weight 1); without it a row without peers gets 0
    (or `lone_credit` where an earlier stage set one).

    A level on which the row is exactly average says nothing, and is left out of the weights as in the
    public code. There a rounding error of 1e-16 decides whether it is; here what is smaller than
    TIE_TOLERANCE of the peers' largest return counts as 0, so neither ids nor order can matter.

    Departures from the public code (HGPO's recipe for verl-agent): the above; those of `grpo` for k = 0; the
    anchor is whatever key the table carries, not always raw observation text. The prompt's history should
    be as long as `history` (the paper: 2 or 4).
    """

    history: int = param(2, "K: steps of history before the current one, as in the prompt", low=0)
    alpha: float = param(1.0, "growth of the weights with depth, 0: all equal", low=0)
    norm: str = param("mean_std", "divide by the standard deviation or not", choices=("mean_std", "mean"))
    base_group: bool = param(False, "let the outcome's advantage join with weight 1")
    unit: str = param("trajectories", "as in grpo, for base_group", choices=UNITS)
    lone: str = param("zero", "as in grpo, for base_group", choices=("zero", "raw"))
    eps: float = param(1e-6, "added to standard deviations and to the sum of weights", low=0)
    fp32_reference_compat: bool = param(
        False, "float32 statistics as in the public code, spurious ties included"
    )

    compares_returns = True
    metrics_doc = {
        **GROUP_METRICS,
        "no_peer_fraction": "share of rows without a peer at any depth (no step signal)",
        "depth_mean": "deepest level with a peer, mean over rows that have one",
        "levels_mean": "levels that enter the advantage, mean over rows",
    }
    columns_doc = {
        "depth": "deepest level k at which the row has a peer, 0 without",
        "levels": "levels that enter the advantage",
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.base_group:
            GRPO.like(self)  # raises where options exclude each other

    def estimate(self, table: StepTable, signals: Signals, context: Context) -> Estimated:
        require_returns(signals, "hgpo")
        total, weights = np.zeros(len(table)), np.zeros(len(table))
        depth, levels = (np.zeros(len(table), dtype=np.int64) for _ in range(2))
        if self.base_group:
            total = self._outcome(table, signals, context)
            weights = (total != 0).astype(np.float64)
            levels = (total != 0).astype(np.int64)
        for k, (rows, peers) in enumerate(history_groups(table, self.history + 1), start=1):
            votes = table.votes[rows]
            advantage = self._level(signals.returns[rows], peers, votes.astype(np.float64))
            alone = votes_of(peers, votes)[peers] <= 1
            if k == 1:
                advantage = np.where(alone, signals.lone_credit, advantage)
            weight = (k + 1.0) ** self.alpha
            total[rows] += weight * advantage
            weights[rows] += weight * (advantage != 0)
            levels[rows] += advantage != 0
            depth[rows[~alone]] = k
        advantage = np.divide(total, weights + self.eps, out=np.zeros_like(total), where=weights > 0)
        metrics = group_metrics(table, signals.score)
        if len(table):
            metrics |= {
                "no_peer_fraction": float(np.mean(depth == 0)),
                "depth_mean": float(depth.sum() / max(int((depth > 0).sum()), 1)),
                "levels_mean": float(levels.mean()),
            }
        return Estimated(advantage, metrics, {"depth": depth, "levels": levels})

    def _level(self, returns: np.ndarray, peers: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """a_k of the rows of one level, float [M]; a row alone gets 0."""
        ddof = 0 if self.norm == "mean_std" else None
        if self.fp32_reference_compat:
            return normalise_float32(returns, peers, weight, ddof=ddof, eps=self.eps)
        advantage = normalise(returns, peers, weight, ddof=ddof, eps=self.eps)
        deviation = normalise(returns, peers, weight, ddof=None, eps=self.eps) if ddof == 0 else advantage
        return without_noise(advantage, deviation, returns, peers, weight)

    def _outcome(self, table: StepTable, signals: Signals, context: Context) -> np.ndarray:
        """a_0, float [N]."""
        advantage, deviation = (
            GRPO.like(self, norm=norm).estimate(table, signals, context).advantage
            for norm in (self.norm, "mean")
        )
        if self.fp32_reference_compat:
            return advantage
        return without_noise(advantage, deviation, signals.score, table.group_index, table.votes)
