"""T2PO's rules for the rollout: when to play a turn again, when to stop thinking. No credit, pure functions.

arXiv 2605.02178. The resampling rule is that of the public code. NOT RECOVERABLE: what makes the turn score
there (it is missing from the code), and the constants alpha, j, the window N, epsilon and the least prefix;
the defaults below are guesses at the size that the description suggests, and say so.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

ETA = 0.3
"""Change of the turn score below which a turn says nothing new (public code)."""
MAX_TRY = 2
"""Times a turn is played again at most (public code)."""
ALPHA = 0.5
"""Share of the entropy in the signal (a guess)."""
TOP = 20
"""j, candidates of a token that its confidence looks at (a guess)."""
WINDOW = 16
"""N, tokens over which the signal must have settled (a guess)."""
EPSILON = 0.02
"""Mean change of the signal, a token, that counts as settled (a guess)."""
MIN_PREFIX = 64
"""Tokens before thinking may be stopped (a guess)."""
_FLOOR = 1e-6


def uncertainty(entropy: np.ndarray, top_logp: np.ndarray, alpha: float = ALPHA) -> np.ndarray:
    """M_t = alpha H_t + (1 - alpha)(1 - C_t),  C_t = -(1/j) sum_{i<=j} log p_t^(i).

    H and C are first scaled to [0, 1] over the trajectory (a constant one to 0). C is large where one
    candidate has nearly all the probability.

    Args:
        entropy: H, float [T], of the response tokens of one trajectory.
        top_logp: float [T, j], log-probabilities of the j likeliest candidates of each token.
        alpha: share of the entropy.

    Returns:
        float [T] in [0, 1].
    """
    confidence = -np.asarray(top_logp, dtype=np.float64).mean(axis=1)
    return alpha * _scaled(np.asarray(entropy, dtype=np.float64)) + (1 - alpha) * (1 - _scaled(confidence))


def turn_score(signal: np.ndarray) -> float:
    """Phi = exp(mean_t log M_t) over the tokens of a turn; M below 1e-6 counts as 1e-6, no tokens give 0."""
    return float(np.exp(np.log(np.maximum(signal, _FLOOR)).mean())) if len(signal) else 0.0


def must_resample(
    score: np.ndarray, previous: np.ndarray, *, first_step: bool, eta: float = ETA
) -> np.ndarray:
    """bool [B]: 0 < |Phi^k - Phi^(k-1)| < eta, for steps after the first.

    As in the public code a change of exactly 0 is no reason to play the turn again, and trajectories that
    are done are not left out: give them their previous score.

    Args:
        score: Phi^k, float [B], of the turn just played in each trajectory.
        previous: Phi^(k-1), float [B], of the turn before.
        first_step: whether this is the first turn, which has none before.
        eta: least change of a turn that is kept.
    """
    change = np.abs(np.asarray(score, dtype=np.float64) - np.asarray(previous, dtype=np.float64))
    return (change > 0) & (change < eta) & (not first_step)


def resample(
    score: np.ndarray,
    previous: np.ndarray,
    play: Callable[[np.ndarray], np.ndarray],
    *,
    first_step: bool,
    eta: float = ETA,
    max_try: int = MAX_TRY,
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Plays turns again until their scores have changed enough, `max_try` times at most.

    Args:
        score: float [B], of the turns just played.
        previous: float [B], of the turns before.
        play: rows int [R] to the scores float [R] of their new turns.
        first_step: see `must_resample`.
        eta: see `must_resample`.
        max_try: times at most.

    Returns:
        float [B], scores of the turns that are kept; rows played again in each try.
    """
    score, tries = np.array(score, dtype=np.float64), []
    while len(tries) < max_try:
        rows = np.flatnonzero(must_resample(score, previous, first_step=first_step, eta=eta))
        if not len(rows):
            break
        score[rows] = play(rows)
        tries.append(rows)
    return score, tries


def stop_thinking(
    signal: np.ndarray, *, window: int = WINDOW, epsilon: float = EPSILON, min_prefix: int = MIN_PREFIX
) -> int | None:
    """After how many tokens of a turn's thought to force its end, None if never.

    The least n >= min_prefix for which the last `window` changes lie after the signal's peak so far and
        mean_{t = n - window … n - 1} |M_t - M_{t-1}| < epsilon.

    Args:
        signal: M, float [T], of the thought so far.
        window: N.
        epsilon: mean change that counts as settled.
        min_prefix: L_min.
    """
    if len(signal) <= window:
        return None
    last = np.arange(window, len(signal))  # index n - 1 of the last token of each window
    settled = sliding_window_view(np.abs(np.diff(signal)), window).mean(axis=1) < epsilon
    highest = np.maximum.accumulate(signal)
    peak = np.maximum.accumulate(np.where(np.diff(highest, prepend=-np.inf) > 0, np.arange(len(signal)), 0))
    stops = np.flatnonzero(settled & (peak[last] < last + 1 - window) & (last + 1 >= min_prefix))
    return int(last[stops[0]]) + 1 if len(stops) else None


def _scaled(values: np.ndarray) -> np.ndarray:
    span = np.ptp(values) if len(values) else 0.0
    return (values - values.min()) / span if span > 0 else np.zeros(len(values))
