"""The return of a step less the mean return of the group's steps from the same state, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from configs.params import param
from credit.base import Estimator
from credit.signals import Context, Estimated, Signals, require_returns
from credit.statistics import codes, normalise, peer_ids
from credit.table import StepTable


@dataclass(frozen=True)
class StateMean(Estimator):
    """A_i = R_i - mean R over the rows of i's group at i's anchor (over their standard deviation).

    3SPO's step advantage, arXiv 2606.09961, for groups made of the answers tried in one state
    (`tree_search`). In other groups it is GiGPO's step advantage without the outcome's.
    """

    norm: str = param("mean", "what is done with the returns of one state", choices=("mean", "mean_std"))

    compares_returns = True

    def estimate(self, table: StepTable, signals: Signals, context: Context) -> Estimated:
        require_returns(signals, "state_mean")
        state = peer_ids(table.group_index, codes(table.anchor))
        ddof = 1 if self.norm == "mean_std" else None
        votes = table.votes.astype(np.float64)
        return Estimated(normalise(signals.returns, state, votes, ddof=ddof, eps=1e-6))
