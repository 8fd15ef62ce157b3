"""Which steps of a group stand at the same place: equal anchors, anchors that read alike, equal pasts.

A group's steps at one place are the peers that GiGPO and its relatives compare, and the nodes of graphs. Both
clusterings visit texts in an order that depends on neither row order nor ids.
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import SequenceMatcher

import numpy as np

from credit.scorer.base import PairScorer
from credit.statistics import codes, peer_ids
from credit.table import StepTable


def exact_anchor_groups(table: StepTable) -> np.ndarray:
    """int [N]: rows of one group with equal anchors, across trajectories and across time within one."""
    return peer_ids(table.group_index, codes(table.anchor))


def similar_anchor_groups(table: StepTable, threshold: float) -> np.ndarray:
    """int [N]: greedy clusters of a group's anchors by character similarity, see `similar_texts`."""
    founder = similar_texts(table.group_index, table.anchor, table.t, threshold)
    return peer_ids(table.group_index, founder)


def similar_texts(group: np.ndarray, text: np.ndarray, t: np.ndarray, threshold: float) -> np.ndarray:
    """int [M]: the founder of each text's cluster; equal in one group means the same cluster.

    Distinct texts of a group are visited by (earliest step seen, text); each joins the first cluster whose
    first member f has SequenceMatcher(f, text).ratio() >= threshold, else it founds one. The public code
    visits rows as they come; this order depends on neither row order nor ids.

    Args:
        group: int [M].
        text: str [M].
        t: int [M], at which step the text was seen.
        threshold: least similarity, in [0, 1].
    """
    code = codes(text)
    text_of = dict(zip(code.tolist(), text, strict=True))
    cluster = np.empty(len(code), dtype=np.int64)
    order = np.argsort(group, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(group[order])) + 1):
        earliest: dict[int, int] = {}
        for c, seen in zip(code[rows].tolist(), t[rows].tolist(), strict=True):
            earliest[c] = min(seen, earliest.get(c, seen))
        founders: list[int] = []
        joined: dict[int, int] = {}
        for c in sorted(earliest, key=lambda c: (earliest[c], text_of[c])):
            founder = next((f for f in founders if _similar(text_of[f], text_of[c], threshold)), c)
            if founder == c:
                founders.append(c)
            joined[c] = founder
        cluster[rows] = [joined[c] for c in code[rows].tolist()]
    return cluster


def scored_texts(
    group: np.ndarray, text: np.ndarray, t: np.ndarray, threshold: float, scorer: PairScorer
) -> np.ndarray:
    """int [M]: `similar_texts` with a scorer, which is asked once for the next founder of every group."""
    code = codes(text)
    text_of = dict(zip(code.tolist(), text, strict=True))
    earliest: dict[tuple[int, int], int] = {}
    for place, seen in zip(zip(group.tolist(), code.tolist(), strict=True), t.tolist(), strict=True):
        earliest[place] = min(seen, earliest.get(place, seen))
    waiting: dict[int, list[int]] = {}
    for g, c in sorted(earliest, key=lambda place: (place[0], earliest[place], text_of[place[1]])):
        waiting.setdefault(g, []).append(c)
    joined: dict[tuple[int, int], int] = {}
    while waiting:
        asked = [(g, texts[0], c) for g, texts in waiting.items() for c in texts[1:]]
        scores = scorer.score([(text_of[f], text_of[c]) for _, f, c in asked]) if asked else ()
        joined |= {(g, texts[0]): texts[0] for g, texts in waiting.items()}
        waiting = {}
        for (g, founder, c), score in zip(asked, scores, strict=True):
            if score >= threshold:
                joined[g, c] = founder
            else:
                waiting.setdefault(g, []).append(c)
    places = zip(group.tolist(), code.tolist(), strict=True)
    return np.array([joined[place] for place in places], dtype=np.int64)


def history_groups(table: StepTable, depth: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Rows of one group whose last k anchors, their own included, are the same; for k = 1 … depth.

    Yields:
        rows int [M], those with k anchors behind them (t >= k - 1); peers int [M], 0..P-1. k = 1 is
        GiGPO's anchor group.
    """
    here = exact_anchor_groups(table)
    rows, peers = np.arange(len(table)), here
    yield rows, peers
    for k in range(2, depth + 1):
        before = np.full(len(table), -1)
        before[rows] = peers
        rows = np.flatnonzero(table.t >= k - 1)
        peers = peer_ids(before[rows - 1], here[rows])
        yield rows, peers


def prefix_peers(table: StepTable) -> np.ndarray:
    """int [N]: rows of one group with the same past, anchors s_0 … s_t and actions a_0 … a_{t-1}."""
    start, anchor, action = table.trajectory_start, codes(table.anchor), codes(table.action)
    length, peers, count = np.diff(start), np.zeros(len(table), dtype=np.int64), 0
    for t in range(int(length.max(initial=0))):
        rows = start[:-1][length > t] + t
        past = (peers[rows - 1], action[rows - 1]) if t else (table.group_index[rows],)
        peers[rows] = count + peer_ids(*past, anchor[rows])
        count = int(peers[rows].max()) + 1
    return peers


def _similar(a: str, b: str, threshold: float) -> bool:
    matcher = SequenceMatcher(None, a, b)
    # the first two are cheap upper bounds of the third
    return (
        matcher.real_quick_ratio() >= threshold
        and matcher.quick_ratio() >= threshold
        and matcher.ratio() >= threshold
    )
