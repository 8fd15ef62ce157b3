"""GRPO and Dr.GRPO: the outcome compared inside the group."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from configs.params import param
from credit.base import Estimator
from credit.signals import Context, Estimated, Signals
from credit.statistics import normalise, normalise_float32, peer_range, tied
from credit.table import StepTable

UNITS = ("trajectories", "rows", "first_row")


def unit_weight(table: StepTable, unit: str) -> np.ndarray:
    """float [N]: the weight of each row in its group's statistics, 0 where it abstains.

    - `trajectories`: 1/T, T the trajectory's rows, every trajectory counts the same whatever its length;
    - `rows`: 1, so long trajectories count more (the public code's default,
      `compute_mean_std_cross_steps=True`);
    - `first_row`: 1 at its first row, else 0 (the same code with False). Statistics then miss later rows'
      penalties, and
      an invalid row of a group whose first rows are equal gets -penalty / eps: for comparison only.
    """
    votes, trajectory = table.votes, table.trajectory_index
    if unit == "rows":
        return votes.astype(np.float64)
    if unit == "first_row":
        first = np.zeros(len(table))
        voting = np.flatnonzero(votes)
        first[voting[np.unique(trajectory[voting], return_index=True)[1]]] = 1.0
        return first
    return votes / np.maximum(np.bincount(trajectory, votes), 1)[trajectory]


def group_metrics(table: StepTable, score: np.ndarray) -> dict[str, float]:
    """Size of the groups in trajectories, and how many carry no outcome signal."""
    if not len(table):
        return {}
    sizes = np.bincount(table.group_index[table.trajectory_start[:-1]], table.trajectory_votes)
    low, high = peer_range(score, table.group_index, table.votes)
    return {
        "group_size_mean": float(sizes.mean()),
        "group_size_min": float(sizes.min()),
        "zero_variance_groups": float(np.mean(tied(low, high))),
    }


GROUP_METRICS = {
    "group_size_mean": "trajectories a group, mean",
    "group_size_min": "trajectories in the smallest group; 1 means rows that can learn nothing",
    "zero_variance_groups": "share of groups whose scores are all equal (advantage exactly 0)",
}


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
