"""Policy losses as pure functions over flat token vectors.

Axes: T the loss tokens of one forward pass, S sequences ("sequence" = one step's response, whatever pieces
of it are under the loss). A loss is always `Σ_i w_i · L_i` with weights from `rl.learner.aggregation`,
computed over a whole optimiser step; so the split into micro-batches, their packing and the number of ranks
change no gradient.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch

from rl.learner.aggregation import Aggregation
from rl.learner.kl import MAX_LOG_RATIO, KlKind

Mismatch = Literal["off", "tis", "mask", "recompute"]

GSPO_MAX_LOG_RATIO = 10.0


@dataclass(frozen=True, slots=True)
class LossOptions:
    """The policy loss of a run; meanings and ranges are those of `configs.schema.TrainConfig`.

    Attributes:
        norm_length: Constant L_max of `seq-mean-token-sum-norm`: the longest possible response, tokens.
    """

    kind: Literal["ppo", "gspo"] = "ppo"
    clip_low: float = 0.2
    clip_high: float = 0.2
    dual_clip: float | None = 3.0
    aggregation: Aggregation = "token-mean"
    kl_coef: float = 0.0
    kl_kind: KlKind = "k3"
    entropy_coef: float = 0.0
    norm_length: int = 1
    mismatch: Mismatch = "off"
    mismatch_cap: float = 2.0

    def __post_init__(self) -> None:
        if self.aggregation not in get_args(Aggregation):
            raise ValueError(f"unknown aggregation {self.aggregation!r}: one of {get_args(Aggregation)}")
        if self.norm_length < 1:
            raise ValueError(f"norm_length must be at least 1 token, got {self.norm_length}")
        if self.mismatch not in get_args(Mismatch):
            raise ValueError(f"unknown mismatch {self.mismatch!r}: one of {get_args(Mismatch)}")
        if not self.mismatch_cap > 1:
            raise ValueError(f"mismatch_cap is a factor above 1, got {self.mismatch_cap}")

    @property
    def needs_zero_advantage(self) -> bool:
        """Whether tokens with advantage 0 still have a gradient (through KL or entropy)."""
        return self.kl_coef > 0 or self.entropy_coef > 0


@dataclass(frozen=True, slots=True)
class TokenLoss:
    """Per-token policy loss and what to report of it, all [T].

    Attributes:
        loss_T: The loss before aggregation.
        ratio_T: Importance ratio, detached.
        clipped_T: The ratio clip is active (bool).
        dual_clipped_T: The dual clip is active (bool).
    """

    loss_T: torch.Tensor
    ratio_T: torch.Tensor
    clipped_T: torch.Tensor
    dual_clipped_T: torch.Tensor


def _clipped_surrogate(
    ratio_T: torch.Tensor, advantage_T: torch.Tensor, low: float, high: float, dual: float | None
) -> TokenLoss:
    plain_T = -advantage_T * ratio_T
    bounded_T = -advantage_T * ratio_T.clamp(1.0 - low, 1.0 + high)
    loss_T = torch.maximum(plain_T, bounded_T)
    clipped_T = bounded_T > plain_T
    dual_clipped_T = torch.zeros_like(clipped_T)
    if dual is not None:
        ceiling_T = -advantage_T * dual
        dual_clipped_T = (loss_T > ceiling_T) & (advantage_T < 0)
        loss_T = torch.where(advantage_T < 0, torch.minimum(loss_T, ceiling_T), loss_T)
    return TokenLoss(loss_T, ratio_T.detach(), clipped_T, dual_clipped_T)


def ppo_loss(
    logp_now_T: torch.Tensor,
    logp_sampled_T: torch.Tensor,
    advantage_T: torch.Tensor,
    *,
    clip_low: float,
    clip_high: float,
    dual_clip: float | None,
) -> TokenLoss:
    """Clipped surrogate of PPO (Schulman et al. 2017, eq. 7) with clip-higher and dual clip.

        r_i = exp(logp_now_i − logp_sampled_i)
        L_i = max(−A_i r_i, −A_i clip(r_i, 1 − ε_lo, 1 + ε_hi))
        L_i ← min(L_i, −A_i c)   where A_i < 0 and a dual clip c is set

    Sources: ε_hi > ε_lo is DAPO's clip-higher (Yu et al. 2025, §3.1); the dual clip is Ye et al. 2020,
    eq. 5. Departures: the denominator is the sampler's own log-probability (the learner's before the update
    with `LossOptions.mismatch` `tis` and `recompute`), and the log-ratio is clamped to ±20 against overflow.
    """
    log_ratio_T = (logp_now_T - logp_sampled_T).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    return _clipped_surrogate(log_ratio_T.exp(), advantage_T, clip_low, clip_high, dual_clip)


def gspo_loss(
    logp_now_T: torch.Tensor,
    logp_sampled_T: torch.Tensor,
    advantage_T: torch.Tensor,
    seq_T: torch.Tensor,
    *,
    clip_low: float,
    clip_high: float,
) -> TokenLoss:
    """Sequence-level importance ratio of GSPO in its token form (Zheng et al. 2025, eq. 5 and 13).

        log s_q = mean over i in q of (logp_now_i − logp_sampled_i)
        r_i     = exp(min(logp_now_i − sg[logp_now_i] + sg[log s_q], 10))
        L_i     = max(−A_i r_i, −A_i clip(r_i, 1 − ε_lo, 1 + ε_hi))

    Defined with the aggregation seq-mean-token-mean; no dual clip. Departure: a sequence is one step's
    response, not the whole trajectory.

    Args:
        seq_T: Sequence of each token, int64, 0 … S−1; sequences must be whole.
    """
    log_ratio_T = (logp_now_T - logp_sampled_T).detach()
    count = int(seq_T.max()) + 1 if seq_T.numel() else 0
    sum_S = log_ratio_T.new_zeros(count).index_add_(0, seq_T, log_ratio_T)
    length_S = log_ratio_T.new_zeros(count).index_add_(0, seq_T, torch.ones_like(log_ratio_T))
    log_s_T = (sum_S / length_S.clamp(min=1.0))[seq_T]
    ratio_T = (logp_now_T - logp_now_T.detach() + log_s_T).clamp(max=GSPO_MAX_LOG_RATIO).exp()
    return _clipped_surrogate(ratio_T, advantage_T, clip_low, clip_high, None)


def truncated_weight(logp_old_T: torch.Tensor, logp_sampled_T: torch.Tensor, cap: float) -> torch.Tensor:
    """Weight of each token's loss by truncated importance sampling, a constant in (0, cap].

        w_i = min(exp(logp_old_i − logp_sampled_i), cap)

    `old` is the learner before the update, which the ratio of `ppo_loss` then has as its denominator: the
    clip bounds what the update moves, the weight corrects what the sampler computed differently.

    Sources: Ionides 2008 (truncated importance sampling); Yao et al. 2025, "Your Efficient RL Framework
    Secretly Brings You Off-Policy RL Training" (TIS for a vLLM sampler, a weight per token). Departure: the
    log-ratio is clamped to ±20 against overflow. A weight per token, not one per sequence: biased in theory,
    while products of factors over hundreds of tokens reach the cap or 0.
    """
    log_T = (logp_old_T - logp_sampled_T).detach().clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    return log_T.exp().clamp(max=cap)


def auxiliary_loss(logp_now_T: torch.Tensor, weight_T: torch.Tensor) -> torch.Tensor:
    """Distillation on sampled tokens, per token; weights from `credit.base.AuxLoss`, constants.

        L_i = −w_i logp_now_i

    The term is w_i (logp_teacher_i − logp_now_i); the teacher's part has no gradient, so it is left out
    here and in what is reported.
    """
    return -weight_T * logp_now_T


def policy_loss(
    logp_now_T: torch.Tensor,
    logp_sampled_T: torch.Tensor,
    advantage_T: torch.Tensor,
    seq_T: torch.Tensor,
    options: LossOptions,
    logp_old_T: torch.Tensor | None = None,
) -> TokenLoss:
    """Dispatches to `ppo_loss` or `gspo_loss` with the run's options.

    With `logp_old_T` (mismatch `tis` and `recompute`) the ratio is now / old; with `tis` the loss is also
    weighed by `truncated_weight`; KL, entropy and auxiliary terms are not.
    """
    if logp_old_T is None:
        return _surrogate(logp_now_T, logp_sampled_T, advantage_T, seq_T, options)
    terms = _surrogate(logp_now_T, logp_old_T, advantage_T, seq_T, options)
    if options.mismatch != "tis":
        return terms
    weight_T = truncated_weight(logp_old_T, logp_sampled_T, options.mismatch_cap)
    return replace(terms, loss_T=weight_T * terms.loss_T)


def _surrogate(
    logp_now_T: torch.Tensor,
    logp_before_T: torch.Tensor,
    advantage_T: torch.Tensor,
    seq_T: torch.Tensor,
    options: LossOptions,
) -> TokenLoss:
    if options.kind == "gspo":
        return gspo_loss(
            logp_now_T,
            logp_before_T,
            advantage_T,
            seq_T,
            clip_low=options.clip_low,
            clip_high=options.clip_high,
        )
    return ppo_loss(
        logp_now_T,
        logp_before_T,
        advantage_T,
        clip_low=options.clip_low,
        clip_high=options.clip_high,
        dual_clip=options.dual_clip,
    )
