"""From losses of tokens to the loss of an optimiser step: what weight each token has in the sum."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np

Aggregation = Literal[
    "token-mean",
    "seq-mean-token-sum",
    "seq-mean-token-mean",
    "seq-mean-token-sum-norm",
    "traj-mean-token-mean",
]


def sequence_weights(
    length_S: np.ndarray, trajectory_S: np.ndarray, aggregation: Aggregation, norm_length: int
) -> np.ndarray:
    """Weight every token of sequence q carries in `Σ_i w_i L_i`, over one whole optimiser step.

        token-mean                w = 1 / Σ_q n_q
        seq-mean-token-sum        w = 1 / S
        seq-mean-token-mean       w = 1 / (S n_q)        (GRPO, GSPO)
        seq-mean-token-sum-norm   w = 1 / (S L_max)      (Dr.GRPO, Liu et al. 2025)
        traj-mean-token-mean      w = 1 / (J n_j)        (GRPO with a trajectory as its output o_j)

    n_q counts the loss tokens of sequence q, S the sequences with n_q > 0 (an empty one has weight 0
    and counts nowhere), J and n_j the same for trajectories. Each way divides by a count, so twice the same
    rows give the same gradient. In all but the last, long trajectories weigh more; where failures are the
    long ones, a mean-zero advantage then sums to a push away from whatever was sampled.

    Departures: verl-agent takes its token-mean per micro-batch and averages; here the normaliser is one
    number for the optimiser step. An older public formula of seq-mean-token-sum-norm lacks S: its gradient
    grows with the batch.

    Args:
        length_S: Loss tokens of each sequence, [S].
        trajectory_S: Trajectory of each sequence, any integers, [S].
        aggregation: One of those above.
        norm_length: L_max in tokens.

    Returns:
        Weights [S], float64.
    """
    length_S = np.asarray(length_S, dtype=np.float64)
    live_S = length_S > 0
    if not live_S.any():
        return np.zeros_like(length_S)
    if aggregation == "token-mean":
        weight_S = np.full_like(length_S, 1.0 / length_S.sum())
    elif aggregation == "seq-mean-token-sum":
        weight_S = np.full_like(length_S, 1.0 / live_S.sum())
    elif aggregation == "seq-mean-token-mean":
        weight_S = 1.0 / (live_S.sum() * np.maximum(length_S, 1.0))
    elif aggregation == "seq-mean-token-sum-norm":
        weight_S = np.full_like(length_S, 1.0 / (live_S.sum() * norm_length))
    elif aggregation == "traj-mean-token-mean":
        _, trajectory_S = np.unique(trajectory_S, return_inverse=True)
        length_J = np.bincount(trajectory_S, weights=length_S)
        weight_S = 1.0 / (np.count_nonzero(length_J) * np.maximum(length_J, 1.0)[trajectory_S])
    else:
        raise ValueError(f"unknown aggregation {aggregation!r}: one of {get_args(Aggregation)}")
    return np.where(live_S, weight_S, 0.0)
