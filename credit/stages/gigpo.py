"""GiGPO: the outcome inside the group, and the step's return among steps at the same anchor."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from configs.params import param
from credit.base import Estimator
from credit.parts.anchors import exact_anchor_groups, similar_anchor_groups
from credit.signals import Context, Estimated, Signals, require_returns
from credit.stages.grpo import GRPO
from credit.statistics import GROUP_METRICS, UNITS, normalise, normalise_float32, votes_of
from credit.table import StepTable


@dataclass(frozen=True)
class GiGPO(Estimator):
    """A_i = A^E_i + omega A^S_i,  A^S_i = (R_i - mean_a) / (std_a + eps) over anchor group a of row i.

    arXiv 2505.10978, sections 4.1-4.3. A^E is GRPO's advantage with the same `norm`, `unit` and `lone`; R is
    the step's return (`returns` stage); an anchor group is the rows of one group with the same anchor; a row
    alone at its anchor has A^S = 0 (or `lone_credit` where an earlier stage set one). `norm: mean` drops both
    divisions.

    Departures from the public code (verl-agent): those of `grpo` for A^E; the anchor is whatever key the
    table carries, not always raw observation text; `anchors: similarity` visits anchors in an order of its
    own.
    """

    norm: str = param(
        "mean_std", "divide by the standard deviation or not, in both terms", choices=("mean_std", "mean")
    )
    omega: float = param(1.0, "weight of the step term", low=0)
    anchors: str = param("exact", "which anchors are the same", choices=("exact", "similarity"))
    similarity: float = param(0.95, "least character similarity, for anchors: similarity", low=0, high=1)
    unit: str = param("trajectories", "as in grpo, for the outcome term", choices=UNITS)
    lone: str = param("zero", "as in grpo, for the outcome term", choices=("zero", "raw"))
    eps: float = param(1e-6, "added to both standard deviations", low=0)
    fp32_reference_compat: bool = param(
        False, "float32 statistics as in the public code, spurious ties included"
    )

    compares_returns = True
    activity = "step_abs_mean"
    metrics_doc = {
        **GROUP_METRICS,
        "singleton_fraction": "share of rows alone at their anchor (no step signal)",
        "anchor_size_mean": "rows per anchor group, mean over anchor groups",
        "episode_abs_mean": "mean |A^E| over rows",
        "step_abs_mean": "mean |omega A^S| over rows",
    }
    columns_doc = {
        "episode": "A^E",
        "step": "A^S, before omega",
        "anchor_group": "number of the row's anchor group",
        "anchor_size": "rows in the row's anchor group that vote",
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        GRPO.like(self)  # raises where options exclude each other

    def estimate(self, table: StepTable, signals: Signals, context: Context) -> Estimated:
        require_returns(signals, "gigpo")
        outcome = GRPO.like(self).estimate(table, signals, context)
        anchor = (
            exact_anchor_groups(table)
            if self.anchors == "exact"
            else similar_anchor_groups(table, self.similarity)
        )
        function = normalise_float32 if self.fp32_reference_compat else normalise
        step = function(
            signals.returns,
            anchor,
            table.votes.astype(np.float64),
            ddof=1 if self.norm == "mean_std" else None,
            eps=self.eps,
        )
        size = votes_of(anchor, table.votes)
        step = np.where(size[anchor] == 1, signals.lone_credit, step)
        step = np.where(table.votes, step, 0.0)
        metrics = dict(outcome.metrics)
        if len(table):
            metrics |= {
                "singleton_fraction": float(np.mean(size[anchor] == 1)),
                "anchor_size_mean": float(size.mean()),
                "episode_abs_mean": float(np.abs(outcome.advantage).mean()),
                "step_abs_mean": float(np.abs(self.omega * step).mean()),
            }
        columns = {
            "episode": outcome.advantage,
            "step": step,
            "anchor_group": anchor,
            "anchor_size": size[anchor],
        }
        return Estimated(outcome.advantage + self.omega * step, metrics, columns)
