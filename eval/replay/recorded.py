"""The input of a replay: credit methods, and recorded trajectories as one table per update."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from agent.types import Group
from credit.pipeline import Pipeline
from credit.table import StepTable
from eval.result import EvalError
from rl.rows.assemble import step_table, token_rows
from rl.tracking.trajectory_store import load_groups


@dataclass(frozen=True, slots=True)
class Facts:
    """What a table does not say of a trajectory.

    Attributes:
        group: Its group, as the recording calls it.
        trajectory: Itself, as the recording calls it.
        index: Position in its group, from 0.
        task_id: The task.
        family: The task's family.
        instruction: The task in words.
    """

    group: int | str
    trajectory: int | str
    index: int
    task_id: str = ""
    family: str = ""
    instruction: str = ""


@dataclass(frozen=True, eq=False)
class Recorded:
    """One update of a recording.

    Attributes:
        update: Its number.
        table: One row per step, in the order of the recording.
        row: int [N], row of the recording's file (of the update's own file in a run), from 0.
        facts: Of each trajectory, by its number in `table.trajectory`.
        advantage: float [N] as recorded, None if it was not.
    """

    update: int
    table: StepTable
    row: np.ndarray
    facts: Mapping[int, Facts]
    advantage: np.ndarray | None


@dataclass(frozen=True)
class Method:
    """A credit method, ready to run.

    Attributes:
        name: What its columns are called.
        pipeline: Its stages.
        services: What they require, by name.
        options: Stage to its options as set, for the page.
    """

    name: str
    pipeline: Pipeline
    services: Mapping[str, Any]
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


RUN_TOKENS = frozenset({"logp_sampled"})
"""Token columns that every run records."""


def run_files(run_dir: Path, updates: range | None = None) -> dict[int, Path]:
    """Returns the trajectory files of a run by update, in order.

    Args:
        run_dir: The run's folder.
        updates: Only these; those that were not recorded (`logging.trajectories`) are left out.

    Raises:
        EvalError: None was recorded, or none of those asked for.
    """
    folder = run_dir / "trajectories"
    files = {int(path.stem): path for path in sorted(folder.glob("*.parquet")) if path.stem.isdigit()}
    if not files:
        raise EvalError(f"no trajectories in {folder}: give a run that keeps them (logging.trajectories=1)")
    chosen = files if updates is None else {n: path for n, path in files.items() if n in updates}
    if not chosen:
        asked = f"{updates.start}-{updates.stop - 1}" if len(updates) > 1 else str(updates.start)
        recorded = ", ".join(map(str, files)) if len(files) < 9 else f"{min(files)} to {max(files)}"
        raise EvalError(f"update {asked} was not recorded in {folder}; recorded: {recorded}")
    return chosen


def read_run(files: Mapping[int, Path], *, tokens: bool) -> Iterator[Recorded]:
    """Yields the updates of a run as training saw them.

    Args:
        files: See `run_files`.
        tokens: Whether the tables need `logp_sampled`.
    """
    from datasets import disable_progress_bars  # with the library: a second that files need not pay

    disable_progress_bars()
    for update, path in files.items():
        groups = load_groups(path)
        table = step_table(groups)
        recorded = pq.ParquetFile(path)
        names = {"advantage", "votes"} & set(recorded.schema_arrow.names)  # older files have no votes
        columns = {name: recorded.read([name])[name].to_numpy() for name in names}
        advantage = columns.pop("advantage")
        if tokens:
            columns["tokens"] = {"logp_sampled": _logp_sampled(groups)}
        if columns:
            table = replace(table, **columns)
        yield Recorded(update, table, np.arange(len(table)), _facts(groups), advantage)


def _logp_sampled(groups: Sequence[Group]) -> np.ndarray:
    """float64 [sum(length)]; by way of the token rows, whose precision is what training has."""
    rows = token_rows(groups, mask_truncated=False)
    return np.concatenate([np.empty(0), *(row.logp_sampled for row in rows)])


def _facts(groups: Sequence[Group]) -> dict[int, Facts]:
    """Facts by number, trajectories numbered as `step_table` does."""
    trajectories = sorted((tr for group in groups for tr in group), key=lambda tr: (tr.group, tr.index))
    return {
        number: Facts(tr.group, number, tr.index, tr.task_id, tr.family, tr.instruction)
        for number, tr in enumerate(trajectories)
    }
