"""3SPO's state score as credit: explore where success is not yet known, leave what is solved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from configs.params import param
from credit.base import Shaper
from credit.parts.discounting import discounted_returns
from credit.signals import Context, Shaped, Signals, require_returns
from credit.statistics import codes, normalise, peer_ids
from credit.table import TERMINAL, StepTable

EPS = 1e-6


def new_statistics() -> dict[str, Any]:
    """Nothing seen yet: {"t": 1, "counts": {}}, with counts from a state to [N, N+]."""
    return {"t": 1, "counts": {}}


def update_statistics(
    statistics: Mapping[str, Any], trajectories: Iterable[tuple[Iterable[str], bool]]
) -> dict[str, Any]:
    """The statistics after more finished trajectories; those passed in are left as they are.

        N(s) += 1,  N+(s) += [success],    once for each distinct state s of a trajectory;   t += 1

    Args:
        statistics: as from `new_statistics`.
        trajectories: (states visited, success) of each.
    """
    t, counts = statistics["t"], dict(statistics["counts"])
    for states, success in trajectories:
        t += 1
        for state in set(states):
            n, n_success = counts.get(state, (0, 0))
            counts[state] = [n + 1, n_success + int(success)]
    return {"t": t, "counts": counts}


def reloaded(statistics: Mapping[str, Any]) -> dict[str, Any]:
    """The statistics as the public code reads them back from its file: t = 1 + sum_s N(s)."""
    counts = dict(statistics["counts"])
    return {"t": 1 + sum(n for n, _ in counts.values()), "counts": counts}


def state_score(
    n: np.ndarray, n_success: np.ndarray, t: int, *, alpha: float, xi: float, zeta: float
) -> np.ndarray:
    """S = exp(-alpha ln(t) rho) if N - N+ < xi or rho > zeta else 0,  rho = N+ / (N + 1e-6);  1 if N = 0.

    High where little is known, low where success is frequent, 0 where trying has not helped.

    Args:
        n: N, int [M], trajectories through each state.
        n_success: N+, int [M], successful ones.
        t: 1 + trajectories so far.
        alpha: how fast a state counts as solved.
        xi: failures before a state can count as hopeless.
        zeta: success rate above which it does not.
    """
    rate = n_success / (n + EPS)
    hopeful = (n - n_success < xi) | (rate > zeta)
    return np.where(n == 0, 1.0, np.where(hopeful, np.exp(-alpha * np.log(t) * rate), 0.0))


def n_rollouts(score: np.ndarray, g_max: int) -> np.ndarray:
    """int [M]: ceil(g_max S) actions to sample in a state; 0 cuts the trajectory, 1 goes on untrained."""
    return np.ceil(g_max * score).astype(np.int64)


def novelty_weight(n: np.ndarray, omega_k: float) -> np.ndarray:
    """w = 0.5 exp(-omega_k N), float [M]."""
    return 0.5 * np.exp(-omega_k * n)


def step_reward(
    score: np.ndarray, next_score: np.ndarray, weight: np.ndarray, novel: np.ndarray, success: np.ndarray
) -> np.ndarray:
    """r = w [novel] + (0.5 - w)(S(s) - S(s')) + 0.5 [success], float [M]."""
    return weight * novel + (0.5 - weight) * (score - next_score) + 0.5 * success


def step_advantage(reward: np.ndarray, states: Sequence[str], norm: str = "mean") -> np.ndarray:
    """r less its mean over the samples of one state, over their standard deviation for norm `mean_std`."""
    return normalise(
        reward, codes(states), np.ones(len(reward)), ddof=1 if norm == "mean_std" else None, eps=EPS
    )


@dataclass(frozen=True)
class SSO(Shaper):
    """R~_t = sum_{k>=t} gamma^(k-t) r_k - c_t, r a reward of the state score's making.

        r_t = w [novel] + (0.5 - w) (S(s_t) - S(s_{t+1})) + 0.5 [success]

    arXiv 2606.09961; S and w as in `state_score` and `novelty_weight`, from the counts of all tasks and
    updates so far, kept as this stage's state. Only the credit of 3SPO: its branching rollouts (how often to
    sample where, `n_rollouts`) are not a matter of this stage. An estimator that compares returns must
    follow; anchor groups take the place of a state's samples. c_t is the row's penalty, what its score
    lacks of its outcome.

    NOT RECOVERABLE, since the published training cannot be rebuilt from what is public; the default, and why:
        novel          changed: the next state is another one, as in the public code. The paper says newly
                       reached: first_in_traj, or first_global (in no trajectory before this update either)
        success_at     last_step: 3SPO updates right after a step, when nothing later is known; trajectory
                       gives it to every step of a success
        gamma          0: a step is judged by its own r, as there; above 0 r is a reward to be discounted
        skip_solved    true: a group that succeeds as a whole keeps its returns. It has nothing left to
                       explore, and equal rewards must give no advantage

    Departures from the public code: S and w come from the counts before the update, so that rows do not
    depend on each other's order, and the counts then take in the whole update, the states that
    trajectories end in included; the goal is an object (S = 0, nothing is left to explore) and an
    unknown end changes nothing. The public code forgets t when it reads its file back; here t is kept, and
    `compat_reload_t: true` takes 1 + sum N before every update.
    A state is the bare anchor, whatever the task, as there.
    """

    alpha_s: float = param(50.0, "alpha of the state score: how fast a state counts as solved", low=0)
    xi: float = param(10.0, "failures before a state can count as hopeless", low=0)
    zeta: float = param(0.1, "success rate above which it does not", low=0, high=1)
    omega_k: float = param(0.1, "decay of the novelty weight per visit", low=0)
    novel: str = param(
        "changed", "which steps are novel", choices=("changed", "first_in_traj", "first_global")
    )
    success_at: str = param("last_step", "which steps earn success", choices=("last_step", "trajectory"))
    gamma: float = param(0.0, "discount of r along the trajectory", low=0, high=1)
    skip_solved: bool = param(True, "leave the returns of groups alone that succeed as a whole")
    compat_reload_t: bool = param(False, "t as the public code has it after reading its counts back")

    returns_only = True
    metrics_doc = {
        "score_mean": "mean S(s_t) over rows",
        "novel_fraction": "share of novel steps",
        "reward_mean": "mean r over rows",
        "states_known": "states counted before the update",
        "unvisited_fraction": "share of rows in a state not counted before the update",
    }
    columns_doc = {
        "score": "S(s_t), before the update",
        "next_score": "S(s_{t+1})",
        "novel": "1 for a novel step",
        "reward": "r",
    }

    def shape(self, table: StepTable, signals: Signals, context: Context) -> Shaped:
        require_returns(signals, "sso")
        before = context.state or new_statistics()
        if self.compat_reload_t:
            before = reloaded(before)
        ended = np.fromiter((place is TERMINAL for place in table.next_anchor), dtype=bool, count=len(table))
        unknown = ended & ~table.success
        visits, next_visits = _visits(before, table.anchor), _visits(before, table.next_anchor)
        score, next_score = (
            state_score(*counts, before["t"], alpha=self.alpha_s, xi=self.xi, zeta=self.zeta)
            for counts in (visits, next_visits)
        )
        next_score = np.where(ended, np.where(unknown, score, 0.0), next_score)
        novel = self._novel(table, next_visits[0]) & ~unknown
        weight = novelty_weight(visits[0], self.omega_k)
        reward = step_reward(score, next_score, weight, novel, self._success(table))
        columns = {
            "score": score,
            "next_score": next_score,
            "novel": novel.astype(np.int64),
            "reward": reward,
        }
        metrics = {"states_known": float(len(before["counts"]))}
        if len(table):
            metrics |= {
                "score_mean": float(score.mean()),
                "novel_fraction": float(novel.mean()),
                "reward_mean": float(reward.mean()),
                "unvisited_fraction": float(np.mean(visits[0] == 0)),
            }
        return Shaped(
            returns=self._returns(table, signals, reward),
            metrics=metrics,
            columns=columns,
            state=update_statistics(before, _trajectories(table)),
        )

    def _novel(self, table: StepTable, next_visits: np.ndarray) -> np.ndarray:
        """bool [N]: whether the step leads to a new state."""
        # in time order: before step 0, after step 0, before step 1, …
        place = codes(chain.from_iterable(zip(table.anchor, table.next_anchor, strict=True)))
        if self.novel == "changed":
            return place[1::2] != place[::2]
        visit = peer_ids(np.repeat(table.trajectory_index, 2), place)
        first = np.zeros(len(visit), dtype=bool)
        first[np.unique(visit, return_index=True)[1]] = True
        new = first[1::2]
        return new & (next_visits == 0) if self.novel == "first_global" else new

    def _success(self, table: StepTable) -> np.ndarray:
        """bool [N]: whether the step earns the success of its trajectory."""
        if self.success_at == "trajectory":
            return table.success
        last = np.zeros(len(table), dtype=bool)
        last[table.trajectory_start[1:] - 1] = True
        return table.success & last

    def _returns(self, table: StepTable, signals: Signals, reward: np.ndarray) -> np.ndarray:
        """R~ [N]."""
        returns = discounted_returns(reward, table.trajectory_start, self.gamma)
        returns -= table.outcome - signals.score
        if not self.skip_solved:
            return returns
        failures = np.bincount(table.group_index, ~table.success & table.votes)
        return np.where(failures[table.group_index] == 0, signals.returns, returns)


def _visits(statistics: Mapping[str, Any], places: np.ndarray) -> np.ndarray:
    """int [2, N]: N and N+ of each place; of the goal, those of the state most often in a success."""
    counts = statistics["counts"]
    solved = max((n_success for _, n_success in counts.values()), default=0)
    found = [(solved, solved) if place is TERMINAL else counts.get(place, (0, 0)) for place in places]
    return np.array(found, dtype=np.int64).reshape(-1, 2).T


def _trajectories(table: StepTable) -> Iterable[tuple[set[str], bool]]:
    """States visited, the last one reached included, and success of every trajectory."""
    for start, end in zip(table.trajectory_start[:-1], table.trajectory_start[1:], strict=True):
        states = {*table.anchor[start:end], *table.next_anchor[start:end]}
        yield states - {TERMINAL}, bool(table.success[start])
