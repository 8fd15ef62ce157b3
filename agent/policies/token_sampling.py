"""Samples tokens from logits, and records entropy and likely candidates where asked for."""

from __future__ import annotations

import numpy as np
import torch

from agent.policy import Sampling


def draw(logits_RV: torch.Tensor, uniform_R: np.ndarray, temperature: float) -> tuple[np.ndarray, np.ndarray]:
    """Draws one token per row by inverting the cumulative distribution at `uniform_R`.

    Args:
        logits_RV: Unscaled logits, float32.
        uniform_R: In [0, 1).
        temperature: Divides the logits; 0 takes the most likely token.

    Returns:
        Ids [R] and log-probabilities under the distribution drawn from [R].
    """
    if temperature == 0.0:
        ids_R = logits_RV.argmax(dim=-1)
        return ids_R.cpu().numpy(), np.zeros(len(ids_R), dtype=np.float32)
    logp_RV = torch.log_softmax(logits_RV / temperature, dim=-1)
    cumulative_RV = logp_RV.exp().cumsum(dim=-1, dtype=torch.float64)
    # The first token whose cumulative probability exceeds the target; one of probability 0 never does first.
    target_R1 = torch.from_numpy(uniform_R).to(logits_RV.device)[:, None] * cumulative_RV[:, -1:]
    ids_R1 = torch.searchsorted(cumulative_RV, target_R1, right=True).clamp_(max=logits_RV.shape[1] - 1)
    return ids_R1[:, 0].cpu().numpy(), logp_RV.gather(1, ids_R1)[:, 0].cpu().numpy()


def signals(logits_RV: torch.Tensor, sampling: Sampling) -> np.ndarray:
    """Entropy (nats) and log-probabilities of the `top` likeliest tokens, of the distributions drawn from.

    At temperature 0, of the distribution at temperature 1. A vocabulary smaller than `top` is padded with its
    least likely token.

    Returns:
        float32 [R, 1 + top].
    """
    logp_RV = torch.log_softmax(logits_RV / (sampling.temperature or 1.0), dim=-1)
    entropy_R1 = torch.special.entr(logp_RV.exp()).sum(dim=-1, keepdim=True)
    top_RK = logp_RV.topk(min(sampling.top, logp_RV.shape[1]), dim=-1).values
    top_RK = torch.nn.functional.pad(top_RK, (0, sampling.top - top_RK.shape[1]), mode="replicate")
    return torch.cat([entropy_R1, top_RK], dim=-1).cpu().numpy()
