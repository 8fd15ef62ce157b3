"""ProGPO (progress-conditioned): where all of a group fails, who saw more of the world did better."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from configs.params import param
from credit.base import Reweighter
from credit.parts.token_rows import added, scaled
from credit.signals import Context, Estimated, Signals
from credit.statistics import codes, normalise, peer_ids, peer_range, tied, unit_weight, votes_of
from credit.table import StepTable


def first_visits(table: StepTable) -> np.ndarray:
    """bool [N]: whether the step led to an anchor that its trajectory had not seen before.

    What follows the last step counts, as `TERMINAL` or as the anchor of the last observation.
    """
    rows, start = len(table), table.trajectory_start[:-1]
    seen = codes([*table.anchor[start], *table.next_anchor])
    trajectory = np.concatenate([np.arange(len(start)), table.trajectory_index])
    new = np.zeros(len(start) + rows, dtype=bool)
    new[np.unique(peer_ids(trajectory, seen), return_index=True)[1]] = True
    return new[len(start) :]


@dataclass(frozen=True)
class ProGPOCoverage(Reweighter):
    """A~_i = lam (P_i - mean_g) / (std_g + eps)    in groups g whose outcomes are all 0;    A~_i = A_i else.

        P_i = (D_i - 1) / T_i,    lam = weight q

    D_i is the number of distinct anchors in row i's trajectory of T_i steps, the first and the last included,
    q the share of groups whose outcomes are all 0. Mean and population standard deviation over trajectories.
    With one success in the group the method is silent, and so it is where all P are equal.

    arXiv 2607.22724. By third-party descriptions it counts exact observation strings; here anchors, which
    are those with the environment option `anchor: text`. The outcome is the environment's, before penalties.

    NOT RECOVERABLE (the abstract and two third-party implementations were found); the default, and why:
        weight      0.3 with `scale_by_fail_fraction`, as in one of them, so that it fades as successes come
        combine     `replace`: both let the coverage take the place of the advantage, which was 0 but for
                    penalties; `add` keeps what an earlier stage found, penalties included
        level       `traj`: one number per trajectory. `step` compares the rows' first-visit indicators, whose
                    mean over a trajectory is P, so only steps that led to something new gain
        zero_test   `outcome`; `success` also takes groups with partial scores but no success
    """

    weight: float = param(0.3, "size of the coverage advantage", low=0)
    scale_by_fail_fraction: bool = param(True, "times the share of groups that it acts on")
    level: str = param("traj", "what is compared: trajectories, or their steps", choices=("traj", "step"))
    combine: str = param("replace", "what becomes of the advantage so far", choices=("replace", "add"))
    zero_test: str = param("outcome", "what makes a group a failure", choices=("outcome", "success"))
    eps: float = param(1e-6, "added to the standard deviation", low=0)

    metrics_doc = {
        "fail_fraction": "q, share of groups that fail as a whole",
        "fired_fraction": "share of groups whose advantage is coverage: they fail, and coverage differs",
        "lam": "weight in effect",
        "coverage_mean": "mean P over trajectories",
    }
    columns_doc = {
        "first_visit": "1 where the step led to an anchor new in its trajectory",
        "coverage": "P of the row's trajectory",
        "bonus": "the coverage advantage, 0 where it is silent",
    }

    def reweight(self, table: StepTable, signals: Signals, context: Context) -> Estimated:
        group, trajectory = table.group_index, table.trajectory_index
        new = first_visits(table).astype(np.float64)
        coverage = (np.bincount(trajectory, new) / np.maximum(np.diff(table.trajectory_start), 1))[trajectory]
        compared = coverage if self.level == "traj" else new
        won = table.success if self.zero_test == "success" else table.outcome != 0
        failed = np.bincount(group, won & table.votes) == 0
        fires = failed & ~tied(*peer_range(compared, group, table.votes))
        voting = votes_of(group, table.votes) > 0
        failing = float(failed[voting].mean()) if voting.any() else 0.0
        lam = self.weight * (failing if self.scale_by_fail_fraction else 1.0)
        share = unit_weight(table, "trajectories")
        bonus = lam * normalise(compared, group, share, ddof=0, eps=self.eps)
        bonus = np.where(fires[group], bonus, 0.0)
        advantage = signals.advantage
        if self.combine == "replace":
            advantage = scaled(table, advantage, 1.0 - fires[group])
        metrics = {}
        if len(table):
            metrics = {
                "fail_fraction": failing,
                "fired_fraction": float(fires.mean()),
                "lam": float(lam),
                "coverage_mean": float(coverage[table.trajectory_start[:-1]].mean()),
            }
        columns = {"first_visit": new, "coverage": coverage, "bonus": bonus}
        return Estimated(added(table, advantage, bonus), metrics, columns)
