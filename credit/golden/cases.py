"""Cases of golden numbers as tables, and the comparison with ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from credit.base import Estimator
from credit.signals import Context, Estimated, Signals
from credit.statistics import codes
from credit.table import TERMINAL, StepTable

FLOAT32_TOLERANCE = 1e-5
FLOAT64_TOLERANCE = 1e-9
INVALID_PENALTY = 0.1
"""Subtracted from an invalid row's score and return in every golden case."""


def golden_table(case: Mapping[str, Any]) -> StepTable:
    """The rows of a golden case as a table; 'success' after a success's last step becomes TERMINAL."""
    rows, masks = case["rows"], case.get("response_mask")
    group, trajectory = codes(rows["group_id"]), codes(zip(rows["group_id"], rows["traj_id"], strict=True))
    following = [TERMINAL if text == "success" else text for text in rows["next_obs"]]
    return StepTable(
        group=group,
        trajectory=trajectory,
        t=rows["step_idx"],
        reward=rows["step_reward"],
        outcome=rows["episode_reward"],
        success=rows["success"],
        anchor=rows["anchor_obs"],
        next_anchor=following,
        action=rows["action"],
        valid=rows["is_action_valid"],
        length=np.array([sum(mask) for mask in masks], dtype=np.int64) if masks is not None else None,
    )


def difference(name: str, got: np.ndarray, want: list[float], tolerance: float) -> str | None:
    """None if equal within `tolerance` (absolute), else where not."""
    expected = np.asarray(want, dtype=np.float64)
    if got.shape != expected.shape:
        return f"{name}: shape {got.shape}, expected {expected.shape}"
    error = np.abs(got - expected)
    if not len(error) or error.max() <= tolerance:
        return None
    row = int(error.argmax())
    return f"{name}: row {row} is {got[row]:.9g}, expected {expected[row]:.9g} (tolerance {tolerance:g})"


def compare_advantage(case: Mapping[str, Any], name: str, got: np.ndarray, single: np.ndarray) -> str | None:
    """A float64 column against its golden float64 twin, and the float32 one unless that is an artefact.

    `single` is the same column with fp32_reference_compat, for cases where float32 differs by more than
    rounding.
    """
    exact = difference(f"{name}_f64", got, case[f"{name}_f64"], FLOAT64_TOLERANCE)
    return exact or difference(name, single if case["fp_sensitive"] else got, case[name], FLOAT32_TOLERANCE)


def inputs(
    case: Mapping[str, Any], returns: list[float] | None = None
) -> tuple[StepTable, Signals, np.ndarray]:
    """Exactly the scores (and returns) that the golden case was made from, with its table.

    They were float32 numbers even for the float64 outputs, so they are not recomputed here.

    Returns:
        The table in canonical order; its signals; int [N], the golden row of each.
    """
    table, rows = golden_table(case).canonical()
    score = np.array([sum(tokens) for tokens in case["token_level_rewards"]], dtype=np.float64)[rows]
    known = np.full(len(rows), np.nan) if returns is None else np.array(returns, dtype=np.float64)[rows]
    return table, Signals(known, score, np.zeros(len(rows))), rows


def estimate(case: Mapping[str, Any], stage: Estimator, returns: list[float] | None = None) -> Estimated:
    """What an estimator of one advantage a row makes of a golden case, rows in golden order."""
    table, signals, rows = inputs(case, returns)
    output = stage.estimate(table, signals, Context())
    back = np.argsort(rows)
    return Estimated(output.advantage[back], columns={k: v[back] for k, v in output.columns.items()})


def unit_of(config: Mapping[str, Any]) -> str:
    return "rows" if config["compute_mean_std_cross_steps"] else "first_row"
