"""What flows between stages, what a stage may use besides the table, and what it gives back."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True, eq=False)
class PerToken:
    """An advantage that differs between the tokens of a row; an array says one number per row.

    The type tells the two apart: their shapes do not where a table has as many tokens as rows.

    Attributes:
        values: float [sum(length)], laid out as the table's token columns.
    """

    values: np.ndarray


Advantage = np.ndarray | PerToken


@dataclass(frozen=True)
class Signals:
    """What stages hand on, rows in canonical order.

    Attributes:
        returns: float [N], return of each step; NaN where no stage has computed it.
        score: float [N], what outcome comparisons use: the trajectory's outcome less the row's own penalty.
        lone_credit: float [N], step advantage of a row that has no peer at its anchor (normally 0).
        advantage: float [N], or `PerToken`; None before the estimator.
    """

    returns: np.ndarray
    score: np.ndarray
    lone_credit: np.ndarray
    advantage: Advantage | None = None


@dataclass(frozen=True)
class Context:
    """What a stage may use besides the table, passed explicitly.

    Attributes:
        services: by name, e.g. {"pair_scorer": scorer}; a stage lists those it needs in `requires`.
        seed: seed of the run.
        step: number of the update, for schedules and draws.
        state: what this stage returned as its state at the last update (`Shaped.state`), None at the first.
    """

    services: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    step: int = 0
    state: Any = None

    def rng(self, purpose: str) -> np.random.Generator:
        """A generator of its own for each (seed, step, purpose), so that one draw never moves another."""
        return np.random.default_rng([self.seed, self.step, zlib.crc32(purpose.encode())])


@dataclass(frozen=True)
class Shaped:
    """A shaper's result; None leaves the signal as it was.

    Attributes:
        returns: float [N] or None.
        score: float [N] or None.
        lone_credit: float [N] or None.
        metrics: name to number, names as in the stage's `metrics_doc`.
        columns: name to [N], for reports and the viewer, names as in the stage's `columns_doc`.
        state: what the stage wants back at the next update, or None: JSON values only, saved in checkpoints.
    """

    returns: np.ndarray | None = None
    score: np.ndarray | None = None
    lone_credit: np.ndarray | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    columns: Mapping[str, np.ndarray] = field(default_factory=dict)
    state: Any = None


@dataclass(frozen=True)
class Estimated:
    """An estimator's or reweighter's result.

    Attributes:
        advantage: float [N], or `PerToken` from a stage that works per token.
        metrics: as in `Shaped`.
        columns: as in `Shaped`.
    """

    advantage: Advantage
    metrics: Mapping[str, float] = field(default_factory=dict)
    columns: Mapping[str, np.ndarray] = field(default_factory=dict)


@dataclass(frozen=True)
class Weighted:
    """An auxiliary loss's result.

    Attributes:
        weight: float [sum(length)], see `AuxLoss`.
        metrics: as in `Shaped`.
        columns: as in `Shaped`.
    """

    weight: np.ndarray
    metrics: Mapping[str, float] = field(default_factory=dict)
    columns: Mapping[str, np.ndarray] = field(default_factory=dict)


def require_returns(signals: Signals, stage: str) -> None:
    """Raise a ValueError if some row has no return yet."""
    if np.isnan(signals.returns).any():
        raise ValueError(
            f"credit.{stage}: some rows have no return; put a `returns` stage before it "
            "or fill StepTable.return_to_go"
        )
