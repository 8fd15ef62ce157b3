"""Golden numbers of the public reference code against ours.

Each `<method>.json` holds cases made by running public code (or, for `scpo_semantics`, by enumerating
readings). Methods without a checker are reported as not built; they never count as passed. Checkers that
need another package (the policy loss needs torch) are passed in by the caller.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from credit.base import TERMINAL, Context, Estimated, Estimator, Signals, StepTable
from credit.gigpo import GiGPO
from credit.grpo import GRPO
from credit.pipeline import Pipeline
from credit.returns import Returns
from credit.rloo import RLOO
from credit.scpo import allocate
from credit.statistics import codes

Checker = Callable[[dict[str, Any]], str | None]
"""Takes a case; returns None if it passes, else what differs."""

FLOAT32_TOLERANCE = 1e-5
FLOAT64_TOLERANCE = 1e-9
INVALID_PENALTY = 0.1
"""Subtracted from an invalid row's score and return in every golden case."""


@dataclass(frozen=True)
class ParityResult:
    """Counts by case.

    Attributes:
        passed: cases that agree.
        failed: cases that differ.
        failures: one line for each of them.
        not_built: methods with golden numbers that have no checker.
        by_method: method to (passed, failed).
    """

    passed: int
    failed: int
    failures: tuple[str, ...]
    not_built: tuple[str, ...]
    by_method: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [
            f"{name}: {passed} passed, {failed} failed" for name, (passed, failed) in self.by_method.items()
        ]
        lines += self.failures
        if self.not_built:
            lines.append("not built: " + ", ".join(self.not_built))
        return "\n".join([*lines, f"{self.passed} passed, {self.failed} failed"])


def run_parity(path: str | Path, extra_checkers: Mapping[str, Checker] | None = None) -> ParityResult:
    """Check every case of a folder of golden files, or of one file.

    Args:
        path: folder with `<method>.json` files, or one such file.
        extra_checkers: further methods, by name.

    Raises:
        FileNotFoundError: if there is no JSON file at `path`.
        ValueError: if one of them is no golden file.
    """
    path = Path(path)
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    if not files or not files[0].is_file():
        raise FileNotFoundError(f"{path}: no golden files; expected <method>.json or a folder of them")
    checkers = CHECKERS | dict(extra_checkers or {})
    by_method: dict[str, tuple[int, int]] = {}
    failures: list[str] = []
    not_built: list[str] = []
    for file in files:
        data = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(data, dict) or "method" not in data or "cases" not in data:
            raise ValueError(f"{file}: no golden file; expected an object with `method` and `cases`")
        method = data["method"]
        if method not in checkers:
            not_built.append(method)
            continue
        wrong = [
            f"{method} case {case['case']}: {problem}"
            for case in data["cases"]
            if (problem := checkers[method](case)) is not None
        ]
        by_method[method] = (len(data["cases"]) - len(wrong), len(wrong))
        failures += wrong
    passed, failed = (sum(counts[i] for counts in by_method.values()) for i in (0, 1))
    return ParityResult(passed, failed, tuple(failures), tuple(not_built), by_method)


def golden_table(rows: Mapping[str, list[Any]]) -> StepTable:
    """The rows of a golden case as a table; 'success' after a success's last step becomes TERMINAL."""
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


def _compare(case: Mapping[str, Any], name: str, got: np.ndarray, single: np.ndarray) -> str | None:
    """A float64 column against its golden float64 twin, and the float32 one unless that is an artefact.

    `single` is the same column with fp32_reference_compat, for cases where float32 differs by more than
    rounding.
    """
    exact = difference(f"{name}_f64", got, case[f"{name}_f64"], FLOAT64_TOLERANCE)
    return exact or difference(name, single if case["fp_sensitive"] else got, case[name], FLOAT32_TOLERANCE)


def _estimate(case: Mapping[str, Any], stage: Estimator, returns: list[float] | None = None) -> Estimated:
    """The stage on exactly the scores (and returns) that the golden case was made from, rows in golden order.

    Those were float32 numbers even for the float64 outputs, so they are not recomputed here.
    """
    table, rows = golden_table(case["rows"]).canonical()
    score = np.array([sum(tokens) for tokens in case["token_level_rewards"]], dtype=np.float64)[rows]
    known = np.full(len(rows), np.nan) if returns is None else np.array(returns, dtype=np.float64)[rows]
    output = stage.estimate(table, Signals(known, score, np.zeros(len(rows))), Context())
    back = np.argsort(rows)
    return Estimated(output.advantage[back], columns={k: v[back] for k, v in output.columns.items()})


def _unit(config: Mapping[str, Any]) -> str:
    return "rows" if config["compute_mean_std_cross_steps"] else "first_row"


def check_grpo(case: dict[str, Any]) -> str | None:
    """Row advantages of verl-agent's GRPO (and Dr.GRPO's, without std)."""
    config = case["config"]
    stage = GRPO(
        norm="mean_std" if config["norm_adv_by_std_in_grpo"] else "mean",
        unit=_unit(config),
        lone="raw",
        eps=config["epsilon"],
    )
    single = replace(stage, fp32_reference_compat=True)
    return _compare(
        case, "row_advantage", _estimate(case, stage).advantage, _estimate(case, single).advantage
    )


def check_rloo(case: dict[str, Any]) -> str | None:
    """Row advantages of verl-agent's RLOO."""
    got = _estimate(case, RLOO(unit=_unit(case["config"]), lone="raw")).advantage
    return _compare(case, "row_advantage", got, got)


def check_gigpo(case: dict[str, Any]) -> str | None:
    """Returns, anchor groups, both terms and the sum of the public GiGPO code."""
    config = case["config"]
    shaper = Returns(gamma=config["gamma"], invalid_penalty=INVALID_PENALTY)
    stage = GiGPO(
        norm=config["mode"].removesuffix("_norm"),
        omega=config["step_advantage_w"],
        eps=config["epsilon"],
        anchors="similarity" if config["enable_similarity"] else "exact",
        similarity=config["similarity_thresh"],
        unit="rows",
        lone="raw",
    )
    returns = Pipeline((shaper, stage)).run(golden_table(case["rows"])).returns
    problem = difference("step_rewards_in", returns, case["step_rewards_in"], FLOAT32_TOLERANCE)
    double = _estimate(case, stage, case["step_rewards_in"])
    single = _estimate(case, replace(stage, fp32_reference_compat=True), case["step_rewards_in"])
    clusters = codes(double.columns["anchor_group"].tolist()).tolist()
    if problem is None and clusters != codes(case["step_group"]).tolist():
        problem = f"step_group: {clusters}, expected {case['step_group']}"
    for name, column in (("episode_advantage", "episode"), ("step_advantage", "step")):
        problem = problem or _compare(case, name, double.columns[column], single.columns[column])
    return problem or _compare(case, "row_advantage", double.advantage, single.advantage)


def check_scpo_semantics(case: dict[str, Any]) -> str | None:
    """Every reading of SCPO's allocation: rule x order x pick."""
    matrix = np.array(case["M"], dtype=np.float64).reshape(case["n_ref"], case["n_failed"])
    for reading, credits in case["credits"].items():
        rule, order, pick = reading.split("|")
        position, credit = allocate(
            matrix,
            case["theta"],
            case["lam"],
            order=order,
            pick=pick,
            monotone="running_max" if rule == "runmax" else rule,
        )
        want_position, want_credit = np.full(len(position), -1.0), np.zeros(len(position))
        for v, (j, r) in credits.items():
            want_position[int(v)], want_credit[int(v)] = j, r
        problem = difference(f"{reading} position", position, want_position.tolist(), 0.0) or difference(
            f"{reading} r", credit, want_credit.tolist(), FLOAT64_TOLERANCE
        )
        if problem:
            return problem
    return None


CHECKERS: dict[str, Checker] = {
    "grpo": check_grpo,
    "rloo": check_rloo,
    "gigpo": check_gigpo,
    "scpo_semantics": check_scpo_semantics,
}
