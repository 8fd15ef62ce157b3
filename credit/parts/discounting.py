"""Discounted sums along trajectories, for all trajectories of a table at once."""

from __future__ import annotations

import numpy as np


def discounted_returns(reward: np.ndarray, start: np.ndarray, gamma: float) -> np.ndarray:
    """R_t = r_t + gamma R_{t+1}, t = T-1 … 0, R_T = 0, in each trajectory.

    Args:
        reward: float [N], trajectories one after another, each in time order.
        start: int [T+1], first row of each trajectory, then N.
        gamma: discount.

    Returns:
        float [N].
    """
    returns = np.asarray(reward, dtype=np.float64).copy()
    first, length = start[:-1], np.diff(start)
    # longest first, so that those still running at step t are a prefix
    first, length = first[np.argsort(-length, kind="stable")], np.sort(length)[::-1]
    for t in range(int(length.max(initial=0)) - 2, -1, -1):
        running = first[: np.searchsorted(-length, -(t + 1), side="left")] + t
        returns[running] += gamma * returns[running + 1]
    return returns
