"""CoPO: every step is also answered at other levels of thinking, and the surest of the answers gains most."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from configs.params import param
from credit.base import Steer

MIN_RANGE = 1e-6
"""Confidences closer than this say nothing (public code)."""


@dataclass(frozen=True)
class CoPO(Steer):
    """A~_l = A exp(k n_l) / mean_m exp(k n_m),  n = minmax(c) over the step's answers, 0.5 if they are equal.

    CogRouter's credit (arXiv 2602.12662), from its public code (copo/core_copo.py). A is the played answer's
    advantage, c_l the confidence in the action of answer l: exp of the mean log-probability of its action's
    tokens, 0 without an action. The answers are the one played and one for every opening; the others are
    trained on like the played one (`rl.rows.unplayed`), with what they were made to begin with as part of
    their prompt. Its scaling by diversity is computed there and not used; nor is it here.

    The openings stand for CogRouter's four levels of thinking, which its policy learns to choose between in a
    warm start of its own. `original` says what the played answer is:
        own        a level of its own, beside those of the openings; any policy can do that
        match      of the level whose opening its text begins with, and answered again at the others, as in
                   the public code. A step whose answer begins with none of them is left alone
    """

    k: float = param(2.0, "how much the surest answer gains", low=0)
    openings: str = param(
        "<think></think>|<think>first|<think>because",
        "how answers of the levels begin, separated by |",
    )
    original: str = param("own", "what level the played answer is of", choices=("own", "match"))

    @property
    def levels(self) -> tuple[str, ...]:
        """The openings, one per level."""
        return tuple(self.openings.split("|"))

    def weigh(self, confidence: np.ndarray) -> np.ndarray:
        """See `Steer.weigh`."""
        low, span = confidence.min(), np.ptp(confidence)
        scaled = (confidence - low) / span if span >= MIN_RANGE else np.full(len(confidence), 0.5)
        weight = np.exp(self.k * scaled)
        return weight / weight.mean()
