"""Metrics and credit of an update by search, collected over its many small updates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from agent.rollout.groups import RolloutCounts
from agent.types import Group, Step
from credit.pipeline import CreditResult
from rl.tracking.metrics import count_metrics, rollout_metrics

SUMMED = ("train/optimizer_steps", "train/skipped_steps", "train/loss_tokens", "train/input_tokens")
"""Metrics of which an update reports the sum over its post-step updates; of the others the mean."""


class SearchReport:
    """Collects while an update searches.

    Attributes:
        counts: Rounds, answers, states branched in, and states turned back from.
    """

    def __init__(self) -> None:
        self.counts = dict.fromkeys(("rounds", "answers", "branched", "turned_back"), 0)
        self._credited: dict[int, tuple[float, float]] = {}  # id of a step → (advantage, return)
        self._steps: list[Step] = []  # those of `_credited`, kept alive so that no id comes twice
        self._metrics: list[Mapping[str, float]] = []

    def trained(
        self, steps: Sequence[Step], credit: CreditResult, metrics: Mapping[str, float]
    ) -> dict[int, float]:
        """Takes in a post-step update; returns the return of each of its steps, by id."""
        self._metrics.append(metrics)
        self._steps += steps
        for step, advantage, value in zip(steps, credit.advantage, credit.returns, strict=True):
            self._credited[id(step)] = float(advantage), float(value)
        return {id(step): self._credited[id(step)][1] for step in steps}

    def credit(self, groups: Sequence[Group], state: Mapping[str, Any]) -> CreditResult:
        """Returns what the trajectories' steps were trained with, 0 where there was one answer only."""
        credited = [self._credited.get(id(step), (0.0, 0.0)) for g in groups for tr in g for step in tr.steps]
        advantage, returns = np.array(credited, dtype=np.float64).reshape(-1, 2).T
        return CreditResult(advantage.copy(), None, returns.copy(), {}, {}, state=dict(state))

    def metrics(self, groups: Sequence[Group], failed: RolloutCounts) -> dict[str, float]:
        """Returns what is told of the trajectories, of the search, and of its post-step updates together."""
        metrics = {**rollout_metrics(groups), **count_metrics(failed)}
        metrics |= {f"search/{name}": float(number) for name, number in self.counts.items()}
        for name in {name for one in self._metrics for name in one}:
            values = [one[name] for one in self._metrics if name in one]
            metrics[name] = sum(values) if name in SUMMED else sum(values) / len(values)
        return metrics
