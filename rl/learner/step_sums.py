"""What one update's optimiser steps add up to, and the metrics made of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from rl.learner.mismatch import MAX_REPORTED_LOG_RATIO

SUMS = (
    "loss", "policy_loss", "aux_loss", "kl", "kl_held", "entropy", "clipped", "dual_clipped",
    "gap", "abs_gap", "gap_k3", "tokens", "ref_tokens", "input_tokens",
)  # fmt: skip
MAXIMA = ("ratio", "abs_gap")
"""Names of what a micro-batch reports: sums over its tokens, and maxima."""


@dataclass(slots=True)
class StepSums:
    """What the optimiser steps of one update add up to.

    Attributes:
        rows: Token rows given, over all epochs.
        skipped_rows: Of these, without a gradient.
        steps: Optimiser steps taken.
        skipped_steps: Mini-batches without a gradient.
        grad_norm: Sum over steps.
        grad_scale: Sum over steps of what clipping multiplied the gradient by, in (0, 1].
        ratio_max: Of all steps.
        sums: Of all steps, by the names in `SUMS`.
        before: What was measured of the learner before the first step; if nothing was, the first step's
            own forward pass is taken.
        kl_moved: See `rl.learner.policy_moved`; None where it was not measured.
    """

    rows: int = 0
    skipped_rows: int = 0
    steps: int = 0
    skipped_steps: int = 0
    grad_norm: float = 0.0
    grad_scale: float = 0.0
    ratio_max: float = 0.0
    sums: dict[str, float] = field(default_factory=lambda: dict.fromkeys(SUMS, 0.0))
    before: dict[str, float] = field(default_factory=dict)
    kl_moved: float | None = None

    @property
    def input_tokens(self) -> float:
        """Tokens through forward and backward."""
        return self.sums["input_tokens"]

    def add(
        self, sums: dict[str, float], maxima: dict[str, float], grad_norm: float, grad_scale: float
    ) -> None:
        """Adds one optimiser step."""
        if not self.steps and not self.before:
            self.before = {
                "train/mismatch_mean": sums["abs_gap"] / sums["tokens"],
                "train/mismatch_kl": sums["gap_k3"] / sums["tokens"],
                "train/mismatch_ratio_max": math.exp(min(maxima["abs_gap"], MAX_REPORTED_LOG_RATIO)),
            }
        for name in SUMS:
            self.sums[name] += sums[name]
        self.ratio_max = max(self.ratio_max, maxima["ratio"])
        self.grad_norm += grad_norm
        self.grad_scale += grad_scale
        self.steps += 1

    def metrics(self) -> dict[str, float]:
        """Means over tokens or steps; what no token measured is absent, never NaN."""
        counts = {
            **self.before,
            "train/optimizer_steps": float(self.steps),
            "train/skipped_steps": float(self.skipped_steps),
            "train/skipped_rows": self.skipped_rows / self.rows if self.rows else 0.0,
            "train/loss_tokens": self.sums["tokens"],
            "train/input_tokens": self.sums["input_tokens"],
        }
        if self.kl_moved is not None:
            counts["train/kl_moved"] = self.kl_moved
        if not self.steps:
            return counts
        sums, tokens = self.sums, self.sums["tokens"]
        if sums["ref_tokens"]:
            counts["train/kl_ref"] = sums["kl"] / sums["ref_tokens"]
            counts["train/kl_held"] = sums["kl_held"] / sums["ref_tokens"]
        return {
            **counts,
            "train/loss": sums["loss"] / self.steps,
            "train/policy_loss": sums["policy_loss"] / self.steps,
            "train/aux_loss": sums["aux_loss"] / self.steps,
            "train/kl_sampled": sums["gap"] / tokens,
            "train/entropy": sums["entropy"] / tokens,
            "train/clip_fraction": sums["clipped"] / tokens,
            "train/dual_clip_fraction": sums["dual_clipped"] / tokens,
            "train/ratio_max": self.ratio_max,
            "train/grad_norm": self.grad_norm / self.steps,
            "train/grad_scale": self.grad_scale / self.steps,
        }
