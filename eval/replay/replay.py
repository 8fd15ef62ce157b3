"""Credit methods over recorded trajectories, side by side and without a model: `run.py replay`.

An update at a time goes in, a row group of the result comes out, and only the trajectories that the page
will show stay in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from credit.pipeline import CreditResult
from eval.replay.disagreement import Agreement
from eval.replay.recorded import Method, Recorded
from eval.replay.shown import Selection, ShownTrajectory
from eval.report.effects import Effect, effects
from eval.result import EvalError


@dataclass(frozen=True)
class Replayed:
    """What came of it.

    Attributes:
        table: The parquet file written.
        updates: Updates replayed, in order.
        trajectories: How many.
        steps: How many.
        agreement: Figures of every method and of every pair of them.
        shown: Trajectories that the methods disagree about most, most first.
        effects: Method → what each of its stages changes in its advantage.
        broken_state: Methods that carry a state from update to update and did not see them all.
    """

    table: Path
    updates: Sequence[int]
    trajectories: int
    steps: int
    agreement: Agreement
    shown: Sequence[ShownTrajectory]
    effects: Mapping[str, Sequence[Effect]]
    broken_state: Sequence[str]


def replay(
    recording: Iterable[Recorded], methods: Sequence[Method], table: Path, *, seed: int = 0, most: int = 200
) -> Replayed:
    """Runs every method over every update, as training would have, and writes the result to `table`.

    A method's state goes from one update to the next in the order given. What filters leave out is only
    marked (`kept.METHOD`): a recording has no other rollouts to put in its place.

    Args:
        recording: Updates, in order.
        methods: With different names.
        table: The parquet file to write; replaced when all is done.
        seed: Seed of the run, for options that draw.
        most: Trajectories to keep for the page.
    """
    agreement = Agreement([method.name for method in methods])
    states: dict[str, Mapping[str, Any]] = {}
    records: dict[str, list[Mapping[str, float]]] = {method.name: [] for method in methods}
    chosen = Selection(most)
    updates: list[int] = []
    trajectories = steps = 0
    partial = table.with_suffix(".partial")
    with _Writer(partial) as writer:
        for recorded in recording:
            results = []
            for method in methods:
                result = method.pipeline.run(
                    recorded.table,
                    method.services,
                    seed=seed,
                    step=recorded.update,
                    state=states.get(method.name),
                )
                states[method.name] = result.state
                records[method.name].append(result.metrics)
                results.append(result)
            writer.write(_rows(recorded, methods, results))
            advantages = np.stack([result.advantage for result in results])
            agreement.add(advantages, recorded.advantage)
            chosen.add(recorded, methods, results, advantages)
            updates.append(recorded.update)
            trajectories, steps = trajectories + len(recorded.facts), steps + len(recorded.table)
    if not updates:
        raise EvalError("no rows to replay: the file is empty")
    partial.replace(table)
    whole = updates == list(range(1, len(updates) + 1))
    broken = [] if whole else [name for name, state in states.items() if state]
    changed = {name: effects(of_method) for name, of_method in records.items()}
    return Replayed(table, updates, trajectories, steps, agreement, chosen.best(), changed, broken)


class _Writer:
    """A parquet file, a row group per piece; columns are the first's, null where a later piece lacks one."""

    def __init__(self, path: Path) -> None:
        self._path, self._writer = path, None

    def __enter__(self) -> _Writer:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._writer:
            self._writer.close()
        if kind:
            self._path.unlink(missing_ok=True)

    def write(self, piece: pa.Table) -> None:
        if self._writer is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = pq.ParquetWriter(self._path, piece.schema)
        schema = self._writer.schema
        columns = [
            piece[field.name].cast(field.type)
            if field.name in piece.schema.names
            else pa.nulls(len(piece), field.type)
            for field in schema
        ]
        self._writer.write_table(pa.table(columns, schema=schema))


def _rows(recorded: Recorded, methods: Sequence[Method], results: Sequence[CreditResult]) -> pa.Table:
    """One row per step: names, what the recording says, and each method's columns."""
    table = recorded.table
    facts = [recorded.facts[number] for number in table.trajectory.tolist()]
    columns: dict[str, Any] = {
        "update": np.full(len(table), recorded.update),
        "row": recorded.row,
        "group": [f.group for f in facts],
        "trajectory": [f.trajectory for f in facts],
        "index": np.array([f.index for f in facts], dtype=np.int64),
        "t": table.t,
        "task_id": pa.array([f.task_id for f in facts], pa.string()),
        "family": pa.array([f.family for f in facts], pa.string()),
        "success": table.success,
        "valid": table.valid,
        "reward": table.reward,
        "action": pa.array(table.action.tolist(), pa.string()),
    }
    if recorded.advantage is not None:
        columns["advantage.recorded"] = recorded.advantage
    for method, result in zip(methods, results, strict=True):
        columns[f"advantage.{method.name}"] = result.advantage
    for method, result in zip(methods, results, strict=True):
        columns |= _own_columns(recorded, method, result)
    return pa.table(columns)


def _own_columns(recorded: Recorded, method: Method, result: CreditResult) -> dict[str, Any]:
    """What a method says besides its advantage, in columns of the same names at every update."""
    table, name = recorded.table, method.name
    columns: dict[str, Any] = {f"return.{name}": result.returns}
    for what, values in (("token_advantage", result.token_advantage), ("aux_weight", result.aux_weight)):
        if values is not None:
            columns[f"{what}.{name}"] = pa.ListArray.from_arrays(pa.array(table.offsets, pa.int32()), values)
    if method.pipeline.filters:
        canonical, rows = table.canonical()
        kept = np.ones(len(table), dtype=bool)
        for stage in method.pipeline.filters:
            kept[rows] &= stage.keep(canonical)
        columns[f"kept.{name}"] = kept
    for stage in method.pipeline.stages:  # a stage may leave columns out where it had nothing to do
        for key in stage.columns_doc:
            full = f"{stage.name()}.{key}"
            values = result.columns.get(full)
            columns[f"{name}.{full}"] = pa.nulls(len(table), pa.float64()) if values is None else values
    return columns
