"""From token rows to the micro-batches of one optimiser step, in which rows lie end to end.

What a forward pass would compute for nothing is left out before that: everything after the last token under
the loss, and (when neither KL nor entropy makes a gradient) responses whose every advantage and auxiliary
weight is exactly 0. Weights are made first, on all rows, so leaving those out changes no gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from rl.learner.aggregation import sequence_weights
from rl.learner.loss import LossOptions
from rl.rows.assemble import Advantage, TokenRow, TokenWeight, span_advantage


@dataclass(frozen=True, slots=True)
class LossRow:
    """What one row contributes to one optimiser step.

    Attributes:
        ids: int32 [L], input tokens up to the one that predicts the last token under the loss.
        position_T: int64 [T], position in `ids` whose output predicts each token under the loss.
        target_T: int64 [T], that token.
        logp_sampled_T: float32 [T].
        logp_old_T: float32 [T], of the learner before the update, or None if the loss does not ask for it.
        logp_ref_T: float32 [T], or None without a reference.
        advantage_T: float32 [T].
        aux_T: float32 [T], weights of the auxiliary loss, or None without one.
        weight_T: float32 [T], see `rl.learner.loss.sequence_weights`.
        lengths: Tokens of each sequence (one step's response, all its pieces), Σ = T.
    """

    ids: np.ndarray
    position_T: np.ndarray
    target_T: np.ndarray
    logp_sampled_T: np.ndarray
    logp_old_T: np.ndarray | None
    logp_ref_T: np.ndarray | None
    advantage_T: np.ndarray
    aux_T: np.ndarray | None
    weight_T: np.ndarray
    lengths: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TokenBatch:
    """One micro-batch. N counts its input tokens, T its tokens under the loss, both in row order.

    Attributes:
        ids_N: int64, row after row.
        rows: Tokens of each row, Σ = N.
        position_T: int64, index among the N.
        target_T: int64, token to predict there.
        logp_sampled_T: float32.
        logp_old_T: float32, or None.
        logp_ref_T: float32, or None.
        advantage_T: float32.
        aux_T: float32, or None.
        weight_T: float32.
        seq_T: int64, sequence of each token, numbered from 0 within the batch.
    """

    ids_N: torch.Tensor
    rows: tuple[int, ...]
    position_T: torch.Tensor
    target_T: torch.Tensor
    logp_sampled_T: torch.Tensor
    logp_old_T: torch.Tensor | None
    logp_ref_T: torch.Tensor | None
    advantage_T: torch.Tensor
    aux_T: torch.Tensor | None
    weight_T: torch.Tensor
    seq_T: torch.Tensor


def loss_rows(
    rows: Sequence[TokenRow],
    advantage: Advantage,
    options: LossOptions,
    logp_ref: Sequence[np.ndarray] | None = None,
    aux: TokenWeight | None = None,
    logp_old: Sequence[np.ndarray] | None = None,
) -> tuple[list[LossRow], int]:
    """Prepares the rows of one optimiser step.

    Args:
        rows: All rows of the step.
        advantage: One per step row or one per response token.
        options: Aggregation, and whether tokens with advantage 0 have a gradient.
        logp_ref: For each row, the reference's log-probabilities, laid out like `logp_sampled`.
        aux: Weights of the auxiliary loss.
        logp_old: For each row, the learner's log-probabilities before the update, laid out the same.

    Returns:
        The rows that have a gradient, and how many had none and were left out.

    Raises:
        ValueError: a NaN or infinite advantage or auxiliary weight.
    """
    length_S = np.array([_length(pieces) for row in rows for _, pieces in row.responses], dtype=np.int64)
    trajectory_S = np.array([row.trajectory for row in rows for _ in row.responses], dtype=np.int64)
    weight_S = sequence_weights(length_S, trajectory_S, options.aggregation, options.norm_length)
    prepared: list[LossRow] = []
    first = 0
    for index, row in enumerate(rows):
        weights = weight_S[first : first + len(row.responses)]
        first += len(weights)
        ref = None if logp_ref is None else logp_ref[index]
        old = None if logp_old is None else logp_old[index]
        kept = _loss_row(row, advantage, weights, old, ref, aux, options.needs_zero_advantage)
        if kept is not None:
            prepared.append(kept)
    return prepared, len(rows) - len(prepared)


def _loss_row(
    row: TokenRow,
    advantage: Advantage,
    weights: np.ndarray,
    old_T: np.ndarray | None,
    ref_T: np.ndarray | None,
    aux: TokenWeight | None,
    keep_zero: bool,
) -> LossRow | None:
    positions, kept, advantages, auxiliary, token_weights, lengths = [], [], [], [], [], []
    offset = 0
    for (step_row, pieces), weight in zip(row.responses, weights, strict=True):
        length = _length(pieces)
        values = span_advantage(advantage, step_row, length)
        distil = np.zeros(length) if aux is None else aux.of(step_row, length)
        for name, numbers in (("advantage", values), ("auxiliary weight", distil)):
            if not np.isfinite(numbers).all():
                raise ValueError(f"{name} of step row {step_row} is not finite: {numbers.tolist()}")
        if keep_zero or values.any() or distil.any():
            positions += [np.arange(start - 1, end - 1) for start, end in pieces]
            kept.append(np.arange(offset, offset + length))
            advantages.append(values)
            auxiliary.append(distil)
            token_weights.append(np.full(length, weight))
            lengths.append(length)
        offset += length
    if not positions:
        return None
    position_T, kept_T = np.concatenate(positions), np.concatenate(kept)
    return LossRow(
        ids=row.ids[: position_T[-1] + 1],
        position_T=position_T,
        target_T=row.ids[position_T + 1].astype(np.int64),
        logp_sampled_T=row.logp_sampled[kept_T],
        logp_old_T=None if old_T is None else old_T[kept_T],
        logp_ref_T=None if ref_T is None else ref_T[kept_T],
        advantage_T=np.concatenate(advantages).astype(np.float32),
        aux_T=None if aux is None else np.concatenate(auxiliary).astype(np.float32),
        weight_T=np.concatenate(token_weights).astype(np.float32),
        lengths=tuple(lengths),
    )


def _length(pieces: Sequence[tuple[int, int]]) -> int:
    return sum(end - start for start, end in pieces)


def split_by_trajectory(rows: Sequence[TokenRow], parts: int, seed: int) -> list[list[int]]:
    """Deals trajectories into `parts` mini-batches of nearly equal count, in a seeded order.

    Returns:
        Row numbers of each non-empty part, ascending.
    """
    trajectories = sorted({row.trajectory for row in rows})
    order = np.random.default_rng(seed).permutation(len(trajectories))
    part_of = {trajectories[j]: i % parts for i, j in enumerate(order)}
    result: list[list[int]] = [[] for _ in range(parts)]
    for number, row in enumerate(rows):
        result[part_of[row.trajectory]].append(number)
    return [part for part in result if part]


def split_by_row(count: int, size: int, seed: int) -> list[list[int]]:
    """Deals `count` rows into as few mini-batches of at most `size` as possible, in a seeded order.

    Their sizes differ by at most one: a remainder of a few rows would take a whole optimiser step on them.

    Returns:
        Row numbers of each part, ascending.
    """
    order = np.random.default_rng(seed).permutation(count)
    return [sorted(part.tolist()) for part in np.array_split(order, -(-count // size))] if count else []


def collate(rows: Sequence[LossRow], device: torch.device) -> TokenBatch:
    """Lays `rows` end to end, and so what the loss needs of them."""
    ends = np.cumsum([len(row.ids) for row in rows])
    lengths = [n for row in rows for n in row.lengths]

    def flat(values: Sequence[np.ndarray | None]) -> torch.Tensor | None:
        return None if values[0] is None else torch.from_numpy(np.concatenate(values)).to(device)

    return TokenBatch(
        ids_N=flat([row.ids.astype(np.int64) for row in rows]),
        rows=tuple(len(row.ids) for row in rows),
        position_T=flat([row.position_T + end - len(row.ids) for row, end in zip(rows, ends, strict=True)]),
        target_T=flat([row.target_T for row in rows]),
        logp_sampled_T=flat([row.logp_sampled_T for row in rows]),
        logp_old_T=flat([row.logp_old_T for row in rows]),
        logp_ref_T=flat([row.logp_ref_T for row in rows]),
        advantage_T=flat([row.advantage_T for row in rows]),
        aux_T=flat([row.aux_T for row in rows]),
        weight_T=flat([row.weight_T for row in rows]),
        seq_T=flat([np.repeat(np.arange(len(lengths)), lengths)]),
    )
