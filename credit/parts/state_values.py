"""For ProGPO: what the states of a group are worth, from the returns of trajectories that came through them.

A step that leads from a poor state to a good one earns the difference. A state may also be told apart by the
states before it; estimates with longer and shorter histories are fused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from credit.parts.anchors import scored_texts, similar_texts
from credit.scorer.base import PairScorer
from credit.statistics import centre, codes, peer_ids, tied
from credit.table import TERMINAL, StepTable


@dataclass(frozen=True, eq=False)
class Visits:
    """The T + 1 states of every trajectory of T steps, one trajectory after another, in time order.

    Attributes:
        group: int [M].
        trajectory: int [M], 0..K-1.
        t: int [M], 0..T.
        state: int [M], the same number for the same state of a group.
        row: int [M], table row of the step taken there, -1 in the state after the last step.
        votes: bool [M], whether that row votes; false without a row.
        terminal: bool [M], `TERMINAL`, in which nothing can be earned any more.
    """

    group: np.ndarray
    trajectory: np.ndarray
    t: np.ndarray
    state: np.ndarray
    row: np.ndarray
    votes: np.ndarray
    terminal: np.ndarray

    @classmethod
    def of(cls, table: StepTable, threshold: float | None = None, scorer: PairScorer | None = None) -> Visits:
        """The visits of a canonical table.

        Args:
            table: of which the anchors are the states.
            threshold: anchors of a group at least as similar are one state; None: equal ones.
            scorer: who says how similar; None: character similarity, as in GiGPO.
        """
        start = table.trajectory_start
        last, k = start[1:] - 1, np.arange(len(start) - 1)
        before, after = step_visits(table)
        m = len(table) + len(k)
        row = np.full(m, -1)
        row[before] = np.arange(len(table))
        of_row = np.where(row >= 0, row, 0)
        end = after[last]
        of_row[end] = last
        names = np.empty(m, dtype=object)
        names[before], names[end] = table.anchor, table.next_anchor[last]
        group, t = table.group_index[of_row], table.t[of_row] + (row < 0)
        terminal = np.fromiter((name is TERMINAL for name in names), dtype=bool, count=m)
        place = codes(names)
        if threshold is not None:
            text = np.flatnonzero(~terminal)
            if scorer is None:
                place[text] = similar_texts(group[text], names[text], t[text], threshold)
            else:
                place[text] = scored_texts(group[text], names[text], t[text], threshold, scorer)
        votes = (row >= 0) & table.votes[of_row]
        return cls(group, table.trajectory_index[of_row], t, peer_ids(group, place), row, votes, terminal)

    def histories(self, depths: int) -> Iterator[np.ndarray]:
        """int [M] for h = 1 … depths: a number for each sequence of the last h states of a group.

        -1 where there are fewer, and in `TERMINAL`.
        """
        before = np.full(len(self.t), -1)
        for h in range(1, depths + 1):
            here = np.flatnonzero((self.t >= h - 1) & ~self.terminal)
            key = np.full(len(self.t), -1)
            key[here] = peer_ids(before[here - 1], self.state[here]) if h > 1 else self.state[here]
            yield key
            before = key


def step_visits(table: StepTable) -> tuple[np.ndarray, np.ndarray]:
    """int [N] each: the visit at which a row's step is taken, and the one it leads to."""
    before = np.arange(len(table)) + table.trajectory_index
    return before, before + 1


def potentials(
    visits: Visits, values: np.ndarray, *, depths: int, loo: bool, var_prior: float
) -> tuple[np.ndarray, np.ndarray]:
    """What each state is worth, estimated at several depths of history and fused by inverse variance.

        Phi = sum_h w_h m_h / sum_h w_h,    w_h = n_h / (s_h^2 + var_prior sigma^2)

    m_h and s_h^2 (sample variance; 0 if n_h = 1) are over the n_h trajectories that have the visit's last h
    states in this order at a step that votes, each with its value at the first such; sigma^2 is the sample
    variance of the group's values. Depths with n_h = 0 are left out; where variances are 0, only those depths
    count, equally. Phi(`TERMINAL`) = 0.

    Args:
        visits: of the table that the values are of.
        values: float [N].
        depths: h goes from 1 to this.
        loo: leave out the trajectory that is asking.
        var_prior: weight of sigma^2.

    Returns:
        Phi float [M], 0 where no depth knows; bool [M], whether one does.
    """
    group = visits.group[visits.row >= 0]
    _, n, squares = centre(values, group, visits.votes[visits.row >= 0].astype(np.float64))
    prior = (var_prior * squares / np.maximum(n - 1, 1))[visits.group]
    means, variances = [], []
    for key in visits.histories(depths):
        mean, spread, count = _through(visits, key, values, loo)
        means.append(mean)
        variances.append(np.where(count > 0, (spread + prior) / np.maximum(count, 1), np.inf))
    variance = np.array(variances)
    sure = variance == 0
    weight = np.where(sure.any(axis=0), sure, 1.0 / np.where(sure, 1.0, variance))
    total = weight.sum(axis=0)
    known = (total > 0) | visits.terminal
    return (weight * means).sum(axis=0) / np.where(total > 0, total, 1.0), known


def _through(
    visits: Visits, key: np.ndarray, values: np.ndarray, loo: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean, sample variance and number [M] of the values of the trajectories that had each visit's key.

    Equal values have variance 0 exactly, also where the asking one is left out: what is left of a difference
    of sums is rounding, and would depend on the order of the trajectories.
    """
    own = peer_ids(key, visits.trajectory)
    valued = np.flatnonzero(visits.votes & (key >= 0))
    if not len(valued):
        return (np.zeros(len(key)),) * 3
    first = valued[np.unique(own[valued], return_index=True)[1]]
    x = values[visits.row[first]]
    deviation, *sums = centre(x, key[first], np.ones(len(x)))
    # one more place for what has no key, or no value
    mean, n, squares = np.zeros((3, int(key.max()) + 2))
    mean[key[first]] = x - deviation
    n[: len(sums[0])], squares[: len(sums[1])] = sums
    mean, n, squares = mean[key], n[key], squares[key]
    member_of = np.full(int(own.max()) + 1, -1)
    member_of[own[first]] = np.arange(len(first))
    alike = _tied(x, key[first], key, member_of[own] if loo else np.full(len(key), -1))
    if loo:
        mine, member = np.zeros((2, int(own.max()) + 1))
        mine[own[first]], member[own[first]] = deviation, 1.0
        mine, member = mine[own], member[own]
        others = np.maximum(n - 1, 1)
        mean, squares, n = mean - mine / others, squares - mine**2 * n / others, n - member
    return mean, np.where(alike, 0.0, np.maximum(squares, 0.0)) / np.maximum(n - 1, 1), n


def _tied(x: np.ndarray, sets: np.ndarray, asked: np.ndarray, left_out: np.ndarray) -> np.ndarray:
    """bool [M]: whether the values of a set are equal, one of them left out.

    Args:
        x: float [V], values.
        sets: int [V], the set of each.
        asked: int [M], sets asked about; one without values is not tied.
        left_out: int [M], which of the values is left out, -1 for none.
    """
    order = np.lexsort((x, sets))
    start = np.searchsorted(sets[order], asked)
    end = np.searchsorted(sets[order], asked, side="right") - 1
    place = np.full(len(x) + 1, -1)  # the last for -1
    place[order] = np.arange(len(x))
    low, high = start + (place[left_out] == start), end - (place[left_out] == end)
    sorted_x, some = x[order], low <= high
    return some & tied(sorted_x[np.where(some, low, 0)], sorted_x[np.where(some, high, 0)])
