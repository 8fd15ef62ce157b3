"""3SPO's search: how many answers to try in a state, where to turn back, and when to train."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from configs.params import param
from credit.base import Steer
from credit.stages.sso import SSO, n_rollouts, state_score


@dataclass(frozen=True)
class TreeSearch(Steer):
    """n(s) = ceil(g_max S(s)): 0 turns back, 1 goes on, more are tried, compared and trained on at once.

    arXiv 2606.09961 with the state score S and the step reward r of `credit.sso`, which a method must list
    too; `rl.search.searcher` plays. A task is searched depth first: in a state the policy answers n(s) times,
    each answer is played in a copy of the environment, and the answers of one state are a group whose steps
    are credited by the stages that follow (r less its mean over the group). The policy is updated right then,
    the search goes on from the answer with the highest r, and where a state turns back or a trajectory ends
    without success, from the best answer left, the deepest first. N and N+ count every trajectory from the
    start to where it ended or turned back.

    NOT RECOVERABLE, since the public collector is a sketch; the readings here, and why:
        end             a search ends with its first success, or after `rollout.group_size` trajectories, so
                        that an update costs about as much as with other methods
        updates         all tasks of an update are searched at the same time, and a post-step update trains on
                        all states that were branched in at the same time, since an optimiser step for eight
                        answers costs nearly as much as one for a hundred
        ties            the answer sampled first goes first
    """

    g_max: int = param(8, "answers in a state that nothing is known of", low=1)

    def samples(self, sso: SSO, statistics: Mapping[str, Any], states: Sequence[str]) -> np.ndarray:
        """n(s) of each state, int [M].

        Args:
            sso: Has the constants of S.
            statistics: Counts of all trajectories so far, as `credit.stages.sso.new_statistics`.
            states: Anchors.
        """
        counts = np.array([statistics["counts"].get(s, (0, 0)) for s in states], dtype=np.int64).reshape(
            -1, 2
        )
        options = dict(alpha=sso.alpha_s, xi=sso.xi, zeta=sso.zeta)
        return n_rollouts(state_score(counts[:, 0], counts[:, 1], statistics["t"], **options), self.g_max)
