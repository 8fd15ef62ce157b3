"""Estimates of a KL divergence from the log-probabilities of sampled tokens."""

from __future__ import annotations

from typing import Literal, TypeVar, get_args

import numpy as np
import torch

KlKind = Literal["k1", "abs", "k2", "k3"]

# Log-ratios are clamped to ±20 before exp: beyond, float32 would overflow and turn 0·inf into NaN
# gradients. Every clip range in use is far inside, so no finite gradient changes.
MAX_LOG_RATIO = 20.0
K3_LIMIT = 10.0

Numbers = TypeVar("Numbers", np.ndarray, torch.Tensor)


def k3(d: Numbers) -> Numbers:
    """exp(d) − d − 1 of log-ratios held within ±20: never negative, and 0 only where the two agree.

    Unbiased for KL(p ‖ q) where p drew the tokens and d = log q − log p (Schulman 2020, "Approximating KL").
    """
    d = d.clip(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    return (torch.exp(d) if isinstance(d, torch.Tensor) else np.exp(d)) - d - 1.0


def kl_estimate(logp_now_T: torch.Tensor, logp_ref_T: torch.Tensor, kind: KlKind) -> torch.Tensor:
    """Per-token estimate of KL(now ‖ ref) from tokens sampled near `now` (Schulman 2020, "Approximating KL").

        d = logp_ref − logp_now
        k1 = −d     abs = |d|     k2 = d²/2     k3 = clip(exp(d) − d − 1, −10, 10)

    Departure: in k3, d is also clamped to ±20 before exp; the outer clip zeroes the gradient there
    anyway. As a *loss*, k1 has an expected gradient of zero on-policy: it measures but does not hold.
    """
    d_T = logp_ref_T - logp_now_T
    if kind == "k1":
        return -d_T
    if kind == "abs":
        return d_T.abs()
    if kind == "k2":
        return 0.5 * d_T.square()
    if kind == "k3":
        return k3(d_T).clamp(-K3_LIMIT, K3_LIMIT)
    raise ValueError(f"unknown KL estimator {kind!r}: one of {get_args(KlKind)}")


def kl_is_held(logp_now_T: torch.Tensor, logp_ref_T: torch.Tensor, kind: KlKind) -> torch.Tensor:
    """Where the outer clip of k3 holds the estimate at its limit, so that it has no gradient (bool [T])."""
    if kind != "k3":
        return torch.zeros_like(logp_now_T, dtype=torch.bool)
    return kl_estimate(logp_now_T.detach(), logp_ref_T, kind) >= K3_LIMIT
