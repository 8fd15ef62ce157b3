"""GraphGPO: a step is worth how near to the goal it leads, on the graph of all that its group did."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

import numpy as np

from configs.params import param
from credit.base import Shaper
from credit.parts.anchors import similar_texts
from credit.signals import Context, Shaped, Signals
from credit.statistics import codes, peer_ids
from credit.table import TERMINAL, StepTable

_GOAL, _DEAD_END = 0, 1


def goal_distances(table: StepTable, similarity: float | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Steps to the goal on each group's graph, before and after every step.

    The nodes are a group's anchors and next anchors, every row is an edge, and the goal is what follows the
    last step of a success that is rewarded. Where no path leads to the goal the distance is 1 + the
    largest one in the group that is known (1 if the group has no success).

    Args:
        table: in canonical order.
        similarity: anchors at least as similar are one node, see `similar_texts`; None: equal ones.

    Returns:
        d(s_t) float [N], d(s_{t+1}) float [N].
    """
    n = len(table)
    ended = np.fromiter((anchor is TERMINAL for anchor in table.next_anchor), dtype=bool, count=n)
    goal = ended & table.success & (table.reward > 0)
    group = np.concatenate([table.group_index, table.group_index])
    place = codes(chain(table.anchor, table.next_anchor))
    if similarity is not None:
        text = np.flatnonzero(~np.concatenate([np.zeros(n, dtype=bool), ended]))
        names = np.concatenate([table.anchor, table.next_anchor])[text]
        seen = np.concatenate([table.t, table.t + 1])[text]
        place[text] = similar_texts(group[text], names, seen, similarity)
    place += 2
    place[n:][ended] = _DEAD_END
    place[n:][goal] = _GOAL
    node = peer_ids(group, place)
    nodes = int(node.max(initial=-1)) + 1
    source, target = node[:n], node[n:]
    distance = distances_to(np.unique(target[goal]), source, target, nodes)
    group_of = np.zeros(nodes, dtype=np.int64)
    group_of[node] = group
    farthest = np.zeros(int(group.max(initial=-1)) + 1)
    reached = np.isfinite(distance)
    np.maximum.at(farthest, group_of[reached], distance[reached])
    distance = np.where(reached, distance, farthest[group_of] + 1)
    return distance[source], distance[target]


def distances_to(goals: np.ndarray, source: np.ndarray, target: np.ndarray, nodes: int) -> np.ndarray:
    """float [nodes]: edges on the shortest path from each node to the nearest goal, inf without a path.

    Args:
        goals: int [.], nodes.
        source: int [E], where each edge starts.
        target: int [E], where it ends.
        nodes: number of nodes.
    """
    order = np.argsort(target, kind="stable")
    start = np.searchsorted(target[order], np.arange(nodes + 1))
    distance = np.full(nodes, np.inf)
    frontier, steps = goals, 0
    while len(frontier):  # breadth first; every edge is looked at once
        distance[frontier] = steps
        count = start[frontier + 1] - start[frontier]
        first = np.repeat(start[frontier] - np.cumsum(count) + count, count)
        before = source[order[first + np.arange(count.sum())]]
        frontier = np.unique(before[np.isinf(distance[before])])
        steps += 1
    return distance


@dataclass(frozen=True)
class GraphGPO(Shaper):
    """R~_t = V gamma^d(s_{t+1}) - c_t, d the distance to the goal on the group's graph.

    arXiv 2605.26684. The graph merges the trajectories of a group: an edge from the anchor before each step
    to the one after; the last step of a success leads to the goal; d counts edges; see `goal_distances`.
    `normalize_distance: true` gives V gamma^(d(s_{t+1}) - d(s_t) + 1) - c_t: one step nearer earns V,
    standing still gamma V, one step away gamma^2 V, wherever it begins; every public script has it off. c_t
    is the row's penalty: what its score lacks of its outcome, so the `returns` stage states it. The returns
    so far are replaced; an estimator that compares returns must follow (gigpo, whose outcome term the paper
    keeps with weight 1). In a group without a success all distances are 1, so the step term is 0.

    gamma is 0.1 for ALFWorld and 0.2 for WebShop in the public code.

    Departures from the public code (GraphGPO's recipe for verl-agent): the goal is an object, not the text
    "success", which an environment might show; a success that pays nothing has no goal (equal rewards must
    give no advantage); similar anchors are visited in GiGPO's order here (earliest step, then text), not in
    row order. A failure whose end is not known leads nowhere.
    """

    gamma: float = param(0.1, "worth of one step of distance; 0.2 for WebShop", low=0, high=1)
    normalize_distance: bool = param(False, "progress from where the step began, not the distance left")
    success_reward: float = param(10.0, "V, the worth of the best step", low=0)
    nodes: str = param("exact", "which anchors are one node of the graph", choices=("exact", "similarity"))
    similarity: float = param(0.95, "least character similarity, for nodes: similarity", low=0, high=1)

    returns_only = True
    metrics_doc = {
        "groups_with_goal": "share of groups whose graph has a goal",
        "distance_mean": "mean d(s_t) over rows of groups with a goal",
        "progress_in_failures": "share of steps of failures that come nearer, in groups with a goal",
        "detour_in_successes": "share of steps of successes that come no nearer, in those groups",
    }
    columns_doc = {
        "distance": "d(s_t), steps to the goal before the step",
        "next_distance": "d(s_{t+1}), after it",
    }

    def shape(self, table: StepTable, signals: Signals, context: Context) -> Shaped:
        before, after = goal_distances(table, self.similarity if self.nodes == "similarity" else None)
        exponent = after - before + 1 if self.normalize_distance else after
        penalty = table.outcome - signals.score
        return Shaped(
            returns=self.success_reward * self.gamma**exponent - penalty,
            metrics=self._metrics(table, before, after),
            columns={"distance": before, "next_distance": after},
        )

    @staticmethod
    def _metrics(table: StepTable, before: np.ndarray, after: np.ndarray) -> dict[str, float]:
        if not len(table):
            return {}
        with_goal = np.zeros(int(table.group_index.max()) + 1, dtype=bool)
        with_goal[table.group_index[after == 0]] = True
        counted = with_goal[table.group_index]
        nearer = after < before
        failed, won = counted & ~table.success, counted & table.success
        return {
            "groups_with_goal": float(with_goal.mean()),
            "distance_mean": float(before[counted].sum() / max(int(counted.sum()), 1)),
            "progress_in_failures": float(nearer[failed].sum() / max(int(failed.sum()), 1)),
            "detour_in_successes": float((~nearer)[won].sum() / max(int(won.sum()), 1)),
        }
