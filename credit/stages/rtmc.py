"""RTMC: what an action was worth against its state, on the tree that a group's trajectories form."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from configs.params import param
from credit.base import Estimator
from credit.parts.anchors import exact_anchor_groups
from credit.parts.discounting import discounted_returns
from credit.signals import Context, Estimated, Signals, require_returns
from credit.statistics import (
    GROUP_METRICS,
    centre,
    codes,
    group_metrics,
    peer_ids,
    votes_of,
    without_noise,
)
from credit.table import StepTable


@dataclass(frozen=True)
class RTMC(Estimator):
    """A_i = (Q(s_i, a_i) - V'(s_i)) / scale_g,  V'(s) = (n_s V(s) + n_prior V_0) / (n_s + n_prior).

    Q(s, a) is the mean return of the trajectories of a group that did a at s, each from its first time on;
    V(s) is the mean of the same n_s returns over all actions at s; V_0 is the mean return of the group's
    trajectories from their start. Returns are those of the step (`returns` stage). The outcome enters
    through them only: there is no A^E. scale_g is the root mean square of the group's A over its rows, so
    signs stay as they are. A group of one trajectory has nothing to compare and gets 0.

    arXiv 2604.11037. NOT RECOVERABLE from what was found (abstract, summaries and a third party's
    implementation, which cites equation 11 for V'); the default, and why:
        n_prior    1: a state that one trajectory saw is worth halfway between its return and V_0
        signature  the paper compresses histories of software engineering into state and action signatures;
                   here the anchor and the parsed action are that already
        prior      V_0 from returns, on the scale of Q; `outcome` takes undiscounted rewards (the third
                   party: the success rate), which makes an all-successful group's early steps losses
        norm       the paper's division is optional and by the standard deviation (`std`); `rms` is the
                   same without a mean, which A is not reduced by, so a group whose A are nearly equal
                   is not blown up

    Reduces to GiGPO's step term with `norm: mean` where n_prior = 0, norm = none and no trajectory does the
    same action at a state twice, and no two do.
    """

    n_prior: float = param(1.0, "trajectories that V_0 counts for at every state", low=0)
    prior: str = param("return", "what V_0 averages", choices=("return", "outcome"))
    norm: str = param("rms", "what a group's advantages are divided by", choices=("rms", "std", "none"))
    eps: float = param(1e-6, "added to the divisor", low=0)

    compares_returns = True
    activity = "branching_fraction"
    metrics_doc = {
        **GROUP_METRICS,
        "branching_fraction": "share of rows at a state where more than one action was tried",
        "state_returns_mean": "n_s of the row's state, mean over rows",
        "scale_mean": "what advantages were divided by, mean over groups",
    }
    columns_doc = {
        "q": "Q(s, a)",
        "value": "V'(s)",
        "state_returns": "n_s, returns that V(s) is the mean of",
    }

    def estimate(self, table: StepTable, signals: Signals, context: Context) -> Estimated:
        require_returns(signals, "rtmc")
        group, state = table.group_index, exact_anchor_groups(table)
        edge = peer_ids(state, codes(table.action))
        voting = np.flatnonzero(table.votes)
        first = voting[np.unique(peer_ids(table.trajectory_index, edge)[voting], return_index=True)[1]]
        q, _ = _means(signals.returns[first], edge[first], int(edge.max(initial=-1)) + 1)
        v, n = _means(signals.returns[first], state[first], int(state.max(initial=-1)) + 1)
        share = (self.n_prior / (n + self.n_prior))[state]
        value = v[state] + share * (self._prior(table, signals)[group] - v[state])
        advantage = q[edge] - value
        advantage = without_noise(advantage, advantage, signals.returns, group, table.votes)
        alone = votes_of(group[table.trajectory_start[:-1]], table.trajectory_votes) <= 1
        advantage = np.where(alone[group], 0.0, advantage)
        scale = self._scale(advantage, group, table.votes.astype(np.float64))
        advantage = np.divide(advantage, scale[group], out=np.zeros_like(advantage), where=advantage != 0)
        metrics = group_metrics(table, signals.score)
        if len(table):
            actions = np.bincount(state[np.unique(edge, return_index=True)[1]])
            metrics |= {
                "branching_fraction": float(np.mean(actions[state] > 1)),
                "state_returns_mean": float(n[state].mean()),
                "scale_mean": float(scale.mean()),
            }
        return Estimated(advantage, metrics, {"q": q[edge], "value": value, "state_returns": n[state]})

    def _prior(self, table: StepTable, signals: Signals) -> np.ndarray:
        """V_0 [G]."""
        start, values, group = table.trajectory_start, signals.returns, table.group_index
        if self.prior == "outcome":
            values = discounted_returns(table.reward, start, 1.0)
        first = start[:-1][table.trajectory_votes]
        return _means(values[first], group[first], int(group.max(initial=-1)) + 1)[0]

    def _scale(self, advantage: np.ndarray, group: np.ndarray, votes: np.ndarray) -> np.ndarray:
        """float [G]: what a group's advantages are divided by, > 0."""
        if self.norm == "none":
            return np.ones(int(group.max(initial=-1)) + 1)
        _, n, squares = centre(advantage, group, votes)
        if self.norm == "rms":
            squares = np.bincount(group, votes * advantage**2)
        scale = np.sqrt(squares / np.maximum(n, 1))
        return np.where(scale > 0, scale + self.eps, 1.0)


def _means(values: np.ndarray, of: np.ndarray, parts: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean and number of the values of each of 0..parts-1."""
    n = np.bincount(of, minlength=parts)
    return np.bincount(of, values, minlength=parts) / np.maximum(n, 1), n
