"""Deals the rows of an optimiser step to the ranks, in rounds of micro-batches that cost nearly the same.

Engines that reduce or gather in every backward pass make the ranks wait for the slowest in each round, so
what counts is the critical path: Σ over rounds of the most expensive micro-batch.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence

from transformers import PreTrainedModel

Round = list[list[int]]
"""Row numbers of each rank's micro-batch, ascending; empty where there are fewer rows than ranks."""


DIFFERENCING = 20_000
"""Items × sets up to which they are split by differencing: some milliseconds."""
EXCHANGES = 40
"""Most exchanges of rows after that."""
EVEN = 1.003
"""A critical path this close to ideal is left as it is."""


def attention_tokens(model: PreTrainedModel) -> float:
    """Tokens at which a row's attention costs as much as everything else.

    Per token, forward and backward, everything else is 6 Ψ operations and attention 6 · layers · hidden ·
    length (causal; Kaplan et al. 2020, arXiv 2001.08361, §2.1).
    """
    config = model.config.get_text_config()
    size = sum(getattr(p, "ds_numel", p.numel()) for p in model.parameters())  # ZeRO-3 keeps a part of each
    return size / (config.num_hidden_layers * config.hidden_size)


def row_cost(length: int, attention: float) -> float:
    """What a row costs, in tokens without attention."""
    return length * (1.0 + length / attention)


def rounds(lengths: Sequence[int], token_budget: int, ranks: int, attention: float = math.inf) -> list[Round]:
    """Splits rows into micro-batches of at most `token_budget` tokens, `ranks` of them per round.

    There are as few rounds as the budget allows. All micro-batches of the step cost nearly the same, those of
    one round still more nearly.

    Args:
        lengths: Tokens of each row.
        token_budget: Most tokens of a micro-batch; a longer row is alone.
        ranks: How many share the work.
        attention: See `attention_tokens`; `inf`: it costs nothing.
    """
    if not lengths:
        return []
    costs = [row_cost(length, attention) for length in lengths]

    def fits(parts: Sequence[Sequence[int]]) -> bool:
        return all(len(part) < 2 or sum(lengths[i] for i in part) <= token_budget for part in parts)

    count = ranks * max(1, math.ceil(sum(lengths) / (token_budget * ranks)))
    while True:
        starts = [parts for parts in (partition(costs, count), _greedy(costs, count)) if fits(parts)]
        if starts:
            break
        count += ranks
    best = math.inf
    for start in starts if ranks > 1 else starts[:1]:
        start.sort(key=lambda part: -sum(costs[i] for i in part))
        path = _even_out(start, ranks, lengths, costs, token_budget)
        if path < best:
            best, parts = path, start
        if best * ranks <= EVEN * sum(costs):
            break
    return [
        [sorted(part) for part in parts[k : k + ranks]]
        for k in range(0, count, ranks)
        if any(parts[k : k + ranks])
    ]


def partition(costs: Sequence[float], parts: int) -> list[list[int]]:
    """Splits items into `parts` sets of nearly equal cost; sets may be empty.

    Few items are split by the largest differencing method: two partial splits, those that are farthest from
    even, are joined, the largest set of one with the smallest of the other, until one is left (Karmarkar &
    Karp 1982; for more than two sets Michiels et al. 2003). Many give every method enough to choose from:
    each, the most expensive first, goes to the set that is cheapest so far.
    """
    if len(costs) * parts > DIFFERENCING:
        return _greedy(costs, parts)
    heap: list[tuple[float, int, list[tuple[float, list[int]]]]] = []
    for item, cost in enumerate(costs):
        heap.append((-cost, item, [(cost, [item]), *([(0.0, [])] * (parts - 1))]))
    heapq.heapify(heap)
    number = len(heap)
    while len(heap) > 1:
        one, other = heapq.heappop(heap)[2], heapq.heappop(heap)[2]
        pairs = zip(one, reversed(other), strict=True)
        joined = sorted(((a + b, x + y) for (a, x), (b, y) in pairs), key=lambda s: (-s[0], s[1]))
        heapq.heappush(heap, (joined[-1][0] - joined[0][0], number, joined))
        number += 1
    return [items for _, items in heap[0][2]] if heap else [[] for _ in range(parts)]


def _greedy(costs: Sequence[float], parts: int) -> list[list[int]]:
    sets: list[list[int]] = [[] for _ in range(parts)]
    heap = [(0.0, number) for number in range(parts)]
    for item in sorted(range(len(costs)), key=lambda i: -costs[i]):
        cost, number = heap[0]
        sets[number].append(item)
        heapq.heapreplace(heap, (cost + costs[item], number))
    return sets


def _even_out(
    parts: list[list[int]], ranks: int, lengths: Sequence[int], costs: Sequence[float], token_budget: int
) -> float:
    """Exchanges rows between micro-batches while that shortens the critical path; returns its length."""
    sums = [sum(costs[i] for i in part) for part in parts]
    for _ in range(EXCHANGES):
        peaks = [max(sums[k : k + ranks]) for k in range(0, len(parts), ranks)]
        if sum(peaks) * ranks <= EVEN * sum(sums):
            break
        found = min(_exchanges(parts, sums, peaks, ranks, lengths, costs, token_budget), default=None)
        if found is None or found[0] > -1e-9 * sum(peaks):
            break
        _, heavy, light, i, j = found
        parts[heavy].remove(i)
        parts[light].append(i)
        if j >= 0:
            parts[light].remove(j)
            parts[heavy].append(j)
        for part in (heavy, light):
            sums[part] = sum(costs[i] for i in parts[part])
    return sum(max(sums[k : k + ranks]) for k in range(0, len(parts), ranks))


def _exchanges(
    parts: Sequence[Sequence[int]],
    sums: Sequence[float],
    peaks: Sequence[float],
    ranks: int,
    lengths: Sequence[int],
    costs: Sequence[float],
    token_budget: int,
) -> Iterator[tuple[float, int, int, int, int]]:
    """Yields (growth of the path, heaviest part of a round, other part, row out of it, row into it or -1)."""
    for k in range(len(peaks)):
        heavy = max(range(k * ranks, (k + 1) * ranks), key=lambda part: sums[part])
        rest = max(s for part, s in enumerate(sums[k * ranks : (k + 1) * ranks], k * ranks) if part != heavy)
        for light, part in enumerate(parts):
            if light == heavy:
                continue
            room = token_budget - sum(lengths[j] for j in part)
            for i in parts[heavy]:
                for j in (None, *part):
                    given = costs[i] - (0.0 if j is None else costs[j])
                    fits = (
                        len(part) + (j is None) == 1 or lengths[i] - (0 if j is None else lengths[j]) <= room
                    )
                    if given <= 0.0 or not fits:
                        continue
                    other = light // ranks
                    left, taken = max(rest, sums[heavy] - given), sums[light] + given
                    if other == k:
                        growth = max(left, taken) - peaks[k]
                    else:
                        growth = left - peaks[k] + max(0.0, taken - peaks[other])
                    yield growth, heavy, light, i, -1 if j is None else j


def critical_path(dealt: Sequence[Round], lengths: Sequence[int], attention: float = math.inf) -> float:
    """Σ over rounds of the most expensive micro-batch, in the unit of `row_cost`."""
    return sum(max(sum(row_cost(lengths[i], attention) for i in part) for part in one) for one in dealt)
