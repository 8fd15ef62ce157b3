"""Compares `rl.learner.loss` with one case of the reference numbers in `policy_loss.json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from rl.learner.aggregation import sequence_weights
from rl.learner.kl import kl_estimate
from rl.learner.loss import TokenLoss, gspo_loss, ppo_loss

TOLERANCE = 2e-6  # absolute + relative: the reference ran in float32
GSPO_TOLERANCE = 1e-5  # its ratios reach e^10


def check_golden_case(case: Mapping[str, Any]) -> str | None:
    """Recomputes losses, gradients, clip fractions and KL of one case.

    Args:
        case: One entry of `cases`: padded [S, L] lists of log-probabilities, advantages and mask, the
            clip configuration and the reference's results.

    Returns:
        None if everything agrees, else one line per figure that does not (name, got, expected).
    """
    failures: list[str] = []
    mask_SL = np.asarray(case["response_mask"], dtype=bool)
    for mode, expected in case["policy_loss"].items():
        tolerance = GSPO_TOLERANCE if mode == "gspo" else TOLERANCE
        for name, got in _figures(case, mask_SL, mode).items():
            if name in expected:
                _compare(failures, f"{mode}.{name}", got, expected[name], tolerance)
    for kind, expected in case["kl_per_token"].items():
        got = kl_estimate(_tensor(case["log_prob"]), _tensor(case["ref_log_prob"]), kind)
        _compare(failures, f"kl.{kind}", got, expected, TOLERANCE)
    kl_T = kl_estimate(_flat(case["log_prob"], mask_SL), _flat(case["ref_log_prob"], mask_SL), "k3")
    for mode, expected in case["kl_k3_agg"].items():
        got = (kl_T * _weights(mask_SL, mode)).sum()
        _compare(failures, f"kl_k3_agg.{mode}", got, expected, TOLERANCE)
    return "\n".join(failures) or None


def _figures(case: Mapping[str, Any], mask_SL: np.ndarray, mode: str) -> dict[str, Any]:
    logp_now_SL = _tensor(case["log_prob"]).requires_grad_()
    mask = torch.from_numpy(mask_SL)
    logp_now_T, logp_sampled_T = logp_now_SL[mask], _flat(case["old_log_prob"], mask_SL)
    result = _token_loss(case, mask_SL, mode, logp_now_T, logp_sampled_T)
    aggregation = "seq-mean-token-mean" if mode == "gspo" else mode
    loss = (result.loss_T * _weights(mask_SL, aggregation)).sum()
    loss.backward()
    return {
        "loss": loss.detach(),
        "grad": logp_now_SL.grad,
        "clipfrac": result.clipped_T.double().mean(),
        "clipfrac_lower": result.dual_clipped_T.double().mean(),
        "ppo_kl": (logp_sampled_T - logp_now_T.detach()).mean(),
    }


def _token_loss(
    case: Mapping[str, Any],
    mask_SL: np.ndarray,
    mode: str,
    logp_now_T: torch.Tensor,
    logp_sampled_T: torch.Tensor,
) -> TokenLoss:
    config = case["config"]
    advantage_T = _flat(case["advantages"], mask_SL)
    clips = {"clip_low": config["cliprange_low"], "clip_high": config["cliprange_high"]}
    if mode == "gspo":
        seq_T = torch.from_numpy(np.repeat(np.arange(len(mask_SL)), mask_SL.sum(1)))
        return gspo_loss(logp_now_T, logp_sampled_T, advantage_T, seq_T, **clips)
    return ppo_loss(logp_now_T, logp_sampled_T, advantage_T, dual_clip=config["clip_ratio_c"], **clips)


def _tensor(values: Sequence[Sequence[float]]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def _flat(values: Sequence[Sequence[float]], mask_SL: np.ndarray) -> torch.Tensor:
    return _tensor(values)[torch.from_numpy(mask_SL)]


def _weights(mask_SL: np.ndarray, aggregation: str) -> torch.Tensor:
    length_S = mask_SL.sum(1)
    weight_S = sequence_weights(length_S, length_S, aggregation, norm_length=mask_SL.shape[1])
    if aggregation == "seq-mean-token-sum-norm":
        # The reference is the older public formula Σ / L_max; ours is a mean over the sequences.
        weight_S = weight_S * np.count_nonzero(length_S)
    return torch.from_numpy(np.repeat(weight_S, length_S))


def _compare(failures: list[str], name: str, got: Any, expected: Any, tolerance: float) -> None:
    got_array, expected_array = np.asarray(got, dtype=np.float64), np.asarray(expected, dtype=np.float64)
    if got_array.shape != expected_array.shape:
        failures.append(f"{name}: shape {got_array.shape}, expected {expected_array.shape}")
    elif not np.allclose(got_array, expected_array, atol=tolerance, rtol=tolerance):
        worst = np.abs(got_array - expected_array).max()
        failures.append(
            f"{name}: got {got_array.tolist()}, expected {expected_array.tolist()}, Δ {worst:.1e}"
        )
