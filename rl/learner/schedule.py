"""Learning rate as a pure function of the update."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class LearningRate:
    """Linear warm-up, then constant, or a decay to `min_ratio · peak` at the last update.

    Attributes:
        peak: Learning rate after warm-up.
        kind: Shape after warm-up.
        warmup: Updates of warm-up; update u of them has u / warmup of the peak.
        updates: Updates of the run (decays end there).
        min_ratio: Final / peak of the decays.
    """

    peak: float
    kind: Literal["constant", "linear", "cosine"] = "constant"
    warmup: int = 0
    updates: int = 1
    min_ratio: float = 0.1

    def at(self, update: int) -> float:
        """Learning rate of `update`, which counts from 1."""
        if update <= self.warmup:
            return self.peak * update / self.warmup
        if self.kind == "constant":
            return self.peak
        span = max(1, self.updates - self.warmup - 1)
        progress = min(1.0, (update - self.warmup - 1) / span)
        decay = 1.0 - progress if self.kind == "linear" else 0.5 * (1.0 + math.cos(math.pi * progress))
        return self.peak * (self.min_ratio + (1.0 - self.min_ratio) * decay)
