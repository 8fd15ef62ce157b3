"""ProGPO (progress and reliability): peers with exactly the same past, else the change of a potential."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from configs.params import param
from credit.base import Estimator
from credit.parts.anchors import prefix_peers
from credit.parts.state_values import Visits, potentials, step_visits
from credit.signals import Context, Estimated, Signals, require_returns
from credit.stages.grpo import GRPO
from credit.statistics import (
    GROUP_METRICS,
    UNITS,
    centre,
    normalise,
    peer_range,
    tied,
    votes_of,
)
from credit.table import StepTable


@dataclass(frozen=True)
class ProGPOPeer(Estimator):
    """A_i = A^E_i + omega A^S_i, A^S from peers with the same past, or from the change of a potential.

        A^S_i = (R_i - mean_p) / (std_p + eps)    over the rows p with row i's past, if there are others
        A^S_i = w delta_i / (std_g + eps)         else
        delta_i = r_i - c_i + gamma Phi(s_{t+1}) - Phi(s_t)

    arXiv 2607.04242. A past is s_0, a_0, …, s_t of one group; sample standard deviations, std_g of all the
    group's values; Phi fuses histories of 1 … `depths` states by inverse variance, see
    `credit.parts.state_values.potentials`. A^E is GRPO's advantage with the same `norm`, `unit` and `lone`;
    `norm: mean` drops all divisions. delta is 0 where a state has no potential (no other trajectory of the
    group came by), and in groups whose values are all equal.

    NOT RECOVERABLE (the abstract and notes on it were found, no code); the default, and why:
        semantic         which anchors are one state: GiGPO's character similarity of 0.95; it may merge
                         places that read alike. `encoder` asks the pair scorer; pasts are always exact
        potential        what Phi averages: the return from there on, which gamma-shaping expects; `outcome`
                         takes what the trajectory earned in all
        depths, fusion   1 … 3; the variance of a mean of n with the group's variance as a prior, so that
                         one trajectory is not taken for certain (`var_prior`)
        loo              the asking trajectory is left out, or it would credit itself with its own return
        potential_gamma  gamma Phi' - Phi leaves the best policy as it is, Phi' - Phi (1.0) does not; give it
                         the `returns` stage's gamma
        fill_mode        fill, as "where no peer exists" says; `add` also adds delta beside peers
        transition       weight w = 1; divided by std_g, to be of the size of the peers' term; r_i is the
                         environment's reward, 0 but at a success, whose last step would look like a loss
                         without it as Phi ends at 0; c_i is the row's penalty
        A^E              kept with weight 1, as in GiGPO
    """

    norm: str = param(
        "mean_std", "divide by the standard deviation or not, in all terms", choices=("mean_std", "mean")
    )
    omega: float = param(1.0, "weight of the step term", low=0)
    transition: float = param(1.0, "w, weight of the potential's change", low=0)
    fill_mode: str = param("fill", "where the potential's change counts", choices=("fill", "add"))
    potential: str = param("return", "what a state's potential averages", choices=("return", "outcome"))
    potential_gamma: float = param(0.95, "gamma of the potential's change", low=0, high=1)
    depths: int = param(3, "longest history, in states, that a potential is estimated for", low=1)
    loo: bool = param(True, "leave the trajectory itself out of its potentials")
    var_prior: float = param(1.0, "weight of the group's variance in that of an estimate", low=0)
    semantic: str = param("difflib", "which anchors are one state", choices=("exact", "difflib", "encoder"))
    similarity: float = param(0.95, "least similarity, for semantic: difflib or encoder", low=0, high=1)
    unit: str = param("trajectories", "as in grpo, for the outcome term", choices=UNITS)
    lone: str = param("zero", "as in grpo, for the outcome term", choices=("zero", "raw"))
    eps: float = param(1e-6, "added to standard deviations", low=0)

    compares_returns = True
    activity = "step_abs_mean"
    metrics_doc = {
        **GROUP_METRICS,
        "peer_fraction": "share of rows with a peer of the same past",
        "filled_fraction": "share of rows without one that the potential gives a step term",
        "episode_abs_mean": "mean |A^E| over rows",
        "step_abs_mean": "mean |omega A^S| over rows",
    }
    columns_doc = {
        "episode": "A^E",
        "step": "A^S, before omega",
        "peers": "rows with the row's past that vote, itself included",
        "potential": "Phi(s_t), 0 where unknown",
        "next_potential": "Phi(s_{t+1}), 0 where unknown and at the end",
        "transition": "delta, before w and the division",
    }

    @property
    def requires(self) -> frozenset[str]:
        """The pair scorer, if it decides which states are the same."""
        return frozenset({"pair_scorer"} if self.semantic == "encoder" else ())

    def estimate(self, table: StepTable, signals: Signals, context: Context) -> Estimated:
        require_returns(signals, "progpo_peer")
        outcome = GRPO(norm=self.norm, unit=self.unit, lone=self.lone, eps=self.eps).estimate(
            table, signals, context
        )
        peers = prefix_peers(table)
        votes = table.votes.astype(np.float64)
        size = votes_of(peers, table.votes)[peers]
        ddof = 1 if self.norm == "mean_std" else None
        step = normalise(signals.returns, peers, votes, ddof=ddof, eps=self.eps)
        columns = self._transition(table, signals, context)
        change = self.transition * columns["transition"] / self._scale(table, signals)
        step = np.where(size == 1, signals.lone_credit + change, step + change * (self.fill_mode == "add"))
        step = np.where(table.votes, step, 0.0)
        columns |= {"episode": outcome.advantage, "step": step, "peers": size}
        metrics = dict(outcome.metrics)
        if len(table):
            alone = max(int((size == 1).sum()), 1)
            metrics |= {
                "peer_fraction": float(np.mean(size > 1)),
                "filled_fraction": float(((size == 1) & (change != 0)).sum() / alone),
                "episode_abs_mean": float(np.abs(outcome.advantage).mean()),
                "step_abs_mean": float(np.abs(self.omega * step).mean()),
            }
        return Estimated(outcome.advantage + self.omega * step, metrics, columns)

    def _values(self, table: StepTable, signals: Signals) -> np.ndarray:
        return signals.returns if self.potential == "return" else table.outcome

    def _scale(self, table: StepTable, signals: Signals) -> np.ndarray:
        """float [N]: std_g + eps of the row's group, or 1."""
        if self.norm == "mean":
            return np.ones(len(table))
        values, group = self._values(table, signals), table.group_index
        _, n, squares = centre(values, group, table.votes.astype(np.float64))
        scale = np.sqrt(squares / np.maximum(n - 1, 1)) + self.eps
        return np.where(scale > 0, scale, 1.0)[group]

    def _transition(self, table: StepTable, signals: Signals, context: Context) -> dict[str, np.ndarray]:
        """Columns `transition`, `potential` and `next_potential`."""
        values = self._values(table, signals)
        visits = Visits.of(
            table,
            None if self.semantic == "exact" else self.similarity,
            context.services["pair_scorer"] if self.semantic == "encoder" else None,
        )
        potential, known = potentials(
            visits, values, depths=self.depths, loo=self.loo, var_prior=self.var_prior
        )
        here, there = step_visits(table)
        flat = tied(*peer_range(values, table.group_index, table.votes))[table.group_index]
        earned = table.reward + signals.score - table.outcome
        change = earned + self.potential_gamma * potential[there] - potential[here]
        return {
            "transition": np.where(known[here] & known[there] & ~flat, change, 0.0),
            "potential": potential[here],
            "next_potential": potential[there],
        }
