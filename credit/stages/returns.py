"""Discounted returns, and the penalty for invalid actions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from configs.params import param
from credit.base import Shaper
from credit.parts.discounting import discounted_returns
from credit.signals import Context, Shaped, Signals
from credit.table import StepTable


@dataclass(frozen=True)
class Returns(Shaper):
    """R_t = sum_{k>=t} gamma^{k-t} r_k - c [row t invalid];  s_t = outcome - c [row t invalid].

    The penalty is subtracted after discounting (so an invalid action does not reach back to the steps
    before it) and before any comparison, both from the step's return and from the score that outcome
    comparisons use, as in the public code of GiGPO (arXiv 2505.10978). Within one trajectory the scores are
    therefore not all equal.
    """

    gamma: float = param(0.95, "discount per step", low=0, high=1)
    invalid_penalty: float = param(0.1, "c, subtracted from an invalid row's return and score", low=0)

    optional = False  # without it there is nothing to compare
    metrics_doc = {
        "mean": "mean return over rows, penalty included",
        "invalid_fraction": "share of invalid rows",
    }

    def shape(self, table: StepTable, signals: Signals, context: Context) -> Shaped:
        penalty = self.invalid_penalty * ~table.valid
        returns = discounted_returns(table.reward, table.trajectory_start, self.gamma) - penalty
        metrics = {}
        if len(table):
            metrics = {"mean": float(returns.mean()), "invalid_fraction": float(np.mean(~table.valid))}
        return Shaped(returns=returns, score=signals.score - penalty, metrics=metrics)
