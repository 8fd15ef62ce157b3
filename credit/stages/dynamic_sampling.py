"""Dynamic sampling: train only on groups whose trajectories do not all end the same."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from configs.params import param
from credit.base import Filter
from credit.statistics import peer_range, tied
from credit.table import StepTable


@dataclass(frozen=True)
class DynamicSampling(Filter):
    """Keeps group g iff max_g o > min_g o, o the trajectories' outcomes.

    DAPO, arXiv 2503.14476, section 3.2. The outcomes are the environment's, before penalties, so that a group
    in which only penalties differ is dropped, as in the public code (verl-agent). Outcomes that differ by
    rounding only are equal.

    `rl.collect` rolls out further tasks for the groups dropped; `refill` says how many at a time:
        missing    as many as are missing: no trajectory is played for nothing
        batch      a whole batch; of more groups than wanted, those drawn last are not trained on
        batch_all  a whole batch, and all that is kept is trained on: the public code, whose batch size varies

    The last of `max_batches` tries is kept unfiltered, so an update always has its groups.
    """

    max_batches: int = param(10, "rollouts per update, the first included", low=1)
    refill: str = param("missing", "tasks of a further rollout", choices=("missing", "batch", "batch_all"))

    def keep(self, table: StepTable) -> np.ndarray:
        group = table.group_index
        return ~tied(*peer_range(table.outcome, group, table.votes))[group]
