"""Statistics of rows that are compared with each other (peers): float64, equal values give exactly 0.

Peers are int columns [N] with values 0..P-1, equal for rows that are compared. Weights say what one vote is:
a row, or a trajectory whose rows share one (`unit_weight`).
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from credit.table import StepTable

TIE_TOLERANCE = 1e-8
"""Peers spread over less than this share of their largest magnitude are equal: rounding is not a signal."""


UNITS = ("trajectories", "rows", "first_row")
"""What can have one vote in a group's statistics, see `unit_weight`."""

GROUP_METRICS = {
    "group_size_mean": "trajectories per group, mean",
    "group_size_min": "trajectories in the smallest group; 1 means rows that can learn nothing",
    "zero_variance_groups": "share of groups whose scores are all equal (advantage exactly 0)",
}
"""What `group_metrics` reports."""


def codes(values: Iterable[object]) -> np.ndarray:
    """int [N]: a number for each distinct hashable value, in order of first appearance."""
    seen: dict[object, int] = {}
    return np.array([seen.setdefault(value, len(seen)) for value in values], dtype=np.int64)


def peer_ids(*keys: np.ndarray) -> np.ndarray:
    """int [N]: 0..P-1, equal where all the integer key columns [N] are equal."""
    combined = np.zeros(len(keys[0]), dtype=np.int64)
    for key in keys:
        dense = np.unique(key, return_inverse=True)[1]
        combined = np.unique(combined * (int(dense.max(initial=0)) + 1) + dense, return_inverse=True)[1]
    return combined


def votes_of(peers: np.ndarray, votes: np.ndarray) -> np.ndarray:
    """int [P]: how many rows of each set of peers vote, bool [N]."""
    return np.bincount(peers[votes], minlength=int(peers.max(initial=-1)) + 1)


def peer_range(values: np.ndarray, peers: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Smallest and largest value [P] of each set of peers, over rows of positive weight."""
    n = int(peers.max(initial=-1)) + 1
    low, high = np.full(n, np.inf), np.full(n, -np.inf)
    counted = weight > 0
    np.minimum.at(low, peers[counted], values[counted])
    np.maximum.at(high, peers[counted], values[counted])
    return low, high


def tied(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """bool [P]: whether all peers are equal up to `TIE_TOLERANCE`."""
    return high - low <= TIE_TOLERANCE * np.maximum(np.abs(low), np.abs(high))


def centre(
    values: np.ndarray, peers: np.ndarray, weight: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Deviations from the mean of one's peers.

        d_i = x_i - sum_{j in P(i)} w_j x_j / sum_{j in P(i)} w_j

    Sums are taken over x - min, so that equal values give exactly 0 whatever their magnitude.

    Args:
        values: float [N].
        peers: int [N], 0..P-1.
        weight: float [N], sums to 1 over each unit of comparison (row or trajectory); 0 is not counted.
            Where nobody counts, d is 0.

    Returns:
        d float [N]; number of units [P]; sum of w d^2 [P].
    """
    low, high = peer_range(values, peers, weight)
    n = len(low)
    # the sum of 1/T over T rows is 1 only up to rounding
    units = np.rint(np.bincount(peers, weight, minlength=n))
    shifted = values - low[peers]
    flat = tied(low, high)
    near = np.abs(shifted) <= TIE_TOLERANCE * np.maximum(np.abs(low), np.abs(high))[peers]
    shifted = np.where(flat[peers] & near, 0.0, shifted)
    deviation = shifted - (np.bincount(peers, weight * shifted, minlength=n) / np.maximum(units, 1))[peers]
    return deviation, units, np.bincount(peers, weight * deviation**2, minlength=n)


def normalise(
    values: np.ndarray, peers: np.ndarray, weight: np.ndarray, *, ddof: int | None, eps: float
) -> np.ndarray:
    """Deviation from the peers' mean, over their standard deviation when asked.

        A_i = d_i / (sqrt(sum_j w_j d_j^2 / (n - ddof)) + eps),    n = sum_j w_j

    Args:
        values: float [N].
        peers: int [N].
        weight: float [N], see `centre`.
        ddof: 1 sample, 0 population standard deviation, None to leave out the division.
        eps: added to the standard deviation.
    """
    deviation, units, squares = centre(values, peers, weight)
    if ddof is None:
        return deviation
    scale = np.sqrt(squares / np.maximum(units - ddof, 1)) + eps
    return np.divide(deviation, scale[peers], out=np.zeros_like(deviation), where=deviation != 0)


def without_noise(
    advantage: np.ndarray, deviation: np.ndarray, values: np.ndarray, peers: np.ndarray, weight: np.ndarray
) -> np.ndarray:
    """The advantage, exactly 0 where the deviation from the peers' mean is only rounding."""
    low, high = peer_range(values, peers, weight)
    noise = TIE_TOLERANCE * np.maximum(np.abs(low), np.abs(high))
    return np.where(np.abs(deviation) <= noise[peers], 0.0, advantage)


def normalise_float32(
    values: np.ndarray, peers: np.ndarray, weight: np.ndarray, *, ddof: int | None, eps: float
) -> np.ndarray:
    """`normalise` as the public GiGPO code's float32 tensors do it, spurious advantages of ties included.

    The mean of three or more equal float32 numbers can be off by a unit in the last place. The standard
    deviation about it is then as small as the deviations, and their quotient up to 0.5 where it should be
    0.
    """
    result = np.zeros(len(values), dtype=np.float32)
    single = values.astype(np.float32)
    for rows in np.split(np.argsort(peers, kind="stable"), np.cumsum(np.bincount(peers))[:-1]):
        counted = single[rows[weight[rows] > 0]]
        if not len(counted):
            continue
        mean = _sum_float32(counted) / np.float32(len(counted))
        result[rows] = single[rows] - mean
        if ddof is not None:
            squares = np.square(counted.astype(np.float64) - mean).sum()
            result[rows] /= np.float32(np.sqrt(squares / max(len(counted) - ddof, 1))) + np.float32(eps)
    return result.astype(np.float64)


def unit_weight(table: StepTable, unit: str) -> np.ndarray:
    """float [N]: the weight of each row in its group's statistics, 0 where it abstains.

    - `trajectories`: 1/T, T the trajectory's rows, every trajectory counts the same whatever its length;
    - `rows`: 1, so long trajectories count more (the public code's default,
      `compute_mean_std_cross_steps=True`);
    - `first_row`: 1 at its first row, else 0 (the same code with False). Statistics then miss later rows'
      penalties, and
      an invalid row of a group whose first rows are equal gets -penalty / eps: for comparison only.
    """
    votes, trajectory = table.votes, table.trajectory_index
    if unit == "rows":
        return votes.astype(np.float64)
    if unit == "first_row":
        first = np.zeros(len(table))
        voting = np.flatnonzero(votes)
        first[voting[np.unique(trajectory[voting], return_index=True)[1]]] = 1.0
        return first
    return votes / np.maximum(np.bincount(trajectory, votes), 1)[trajectory]


def group_metrics(table: StepTable, score: np.ndarray) -> dict[str, float]:
    """Size of the groups in trajectories, and how many carry no outcome signal."""
    if not len(table):
        return {}
    sizes = np.bincount(table.group_index[table.trajectory_start[:-1]], table.trajectory_votes)
    low, high = peer_range(score, table.group_index, table.votes)
    return {
        "group_size_mean": float(sizes.mean()),
        "group_size_min": float(sizes.min()),
        "zero_variance_groups": float(np.mean(tied(low, high))),
    }


def _sum_float32(values: np.ndarray) -> np.float32:
    """The sum in torch's order on a CPU with 8 float lanes: tail, then lanes, of four running sums."""
    vectors = values[: len(values) // 8 * 8].reshape(-1, 8)
    whole = len(vectors) // 4 * 4
    running = np.zeros((4, 8), dtype=np.float32)
    for block in vectors[:whole].reshape(-1, 4, 8):
        running += block
    for vector in vectors[whole:]:
        running[0] += vector
    total = np.float32(0)
    for value in (*values[len(vectors) * 8 :], *(running[0] + running[1] + running[2] + running[3])):
        total += value
    return total
