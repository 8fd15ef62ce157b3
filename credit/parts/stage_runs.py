"""Runs the stages of a method one after another; once more without one of them, to see what it changed.

`credit.pipeline` runs a method with it, and `credit.parts.effect` measures each stage's part in the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from credit.base import AuxLoss, Estimator, Shaper, Stage
from credit.signals import Advantage, Context, Estimated, PerToken, Shaped, Signals, Weighted
from credit.table import StepTable


@dataclass(frozen=True, eq=False)
class Act:
    """A stage as it was run.

    Attributes:
        stage: which.
        before: what it was handed.
        context: what it was allowed to use.
        output: what it said.
    """

    stage: Stage
    before: Signals
    context: Context
    output: Shaped | Estimated | Weighted


def act(
    stage: Stage, table: StepTable, signals: Signals, context: Context
) -> tuple[Signals, Shaped | Estimated | Weighted]:
    """Runs a stage: what the next one is handed, and what it said.

    Raises:
        ValueError: its advantage does not fit the table.
    """
    if isinstance(stage, Shaper):
        output = stage.shape(table, signals, context)
        changed = {k: getattr(output, k) for k in ("returns", "score", "lone_credit")}
        return replace(signals, **{k: v for k, v in changed.items() if v is not None}), output
    if isinstance(stage, AuxLoss):
        return signals, stage.weigh(table, signals, context)
    run = stage.estimate if isinstance(stage, Estimator) else stage.reweight
    output = run(table, signals, context)
    _check(stage, table, output.advantage)
    return replace(signals, advantage=_of_voters(table, output.advantage)), output


def without(acts: Sequence[Act], skipped: int, table: StepTable) -> Advantage:
    """The method's advantage had act number `skipped` not taken place.

    The acts before it are not repeated; those after it have the draws and the state they had, and what they
    make of their state is dropped.
    """
    signals = acts[skipped].before
    for later in acts[skipped + 1 :]:
        if not isinstance(later.stage, AuxLoss):
            signals, _ = act(later.stage, table, signals, later.context)
    return signals.advantage


def _of_voters(table: StepTable, advantage: Advantage) -> Advantage:
    """The advantage, 0 in rows that do not vote."""
    if table.votes.all():
        return advantage
    if isinstance(advantage, PerToken):
        return PerToken(np.where(np.repeat(table.votes, table.length), advantage.values, 0.0))
    return np.where(table.votes, advantage, 0.0)


def _check(stage: Stage, table: StepTable, advantage: Advantage) -> None:
    shape, total = (len(table),), (int(table.length.sum()),)
    if isinstance(advantage, PerToken):
        got = advantage.values.shape
        if got != total:
            raise ValueError(
                f"credit.{stage.name()}: advantage per token of shape {got}, expected {total}, "
                "one value per response token"
            )
    elif advantage.shape != shape:
        hint = "; one value per token is PerToken(values)" if advantage.shape == total else ""
        raise ValueError(
            f"credit.{stage.name()}: advantage of shape {advantage.shape}, expected {shape}{hint}"
        )
