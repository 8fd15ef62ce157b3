"""Trajectories made elsewhere: a parquet file, one row per step. The schema is explained in docs/replay.md.

What a table of steps must fulfil is checked in one place, `StepTable`; here are the checks of what only a
file has (columns, their types, missing values, ragged token lists), and the table's errors are told in the
file's rows and names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pt

from configs.params import did_you_mean
from credit.statistics import codes
from credit.table import TERMINAL, StepTable
from eval.replay.recorded import Facts, Recorded
from eval.result import EvalError

TOKEN_PREFIX = "tokens."


@dataclass(frozen=True, slots=True)
class FileColumn:
    """A column of the file.

    Attributes:
        kind: `id` (integer or text), `integer`, `number`, `truth`, `text` or `numbers` (a list a row).
        doc: What it holds.
        needed: The file must have it.
        nulls: It may have missing values.
    """

    kind: str
    doc: str
    needed: bool = False
    nulls: bool = False


SCHEMA = {
    "group": FileColumn("id", "trajectories of one task from one initial state", needed=True),
    "trajectory": FileColumn("id", "one attempt; unique within an update", needed=True),
    "t": FileColumn("integer", "step in its trajectory: 0, 1, 2, … without gaps", needed=True),
    "reward": FileColumn("number", "reward of the step; the presets are meant for 10 a success", needed=True),
    "success": FileColumn(
        "truth", "whether the trajectory solved its task, the same in its rows", needed=True
    ),
    "action": FileColumn("text", "the action taken", needed=True),
    "anchor": FileColumn("text", "key of the same place in the same situation; default: the observation"),
    "observation": FileColumn("text", "what was seen before the action; default: the anchor"),
    "next_anchor": FileColumn(
        "text", "anchor after the action, null after the end; default: the next row's", nulls=True
    ),
    "valid": FileColumn("truth", "whether the action was valid; default: true"),
    "votes": FileColumn("truth", "whether statistics over peers count the step; default: true"),
    "outcome": FileColumn(
        "number", "what outcomes are compared by; default: the trajectory's rewards added up"
    ),
    "update": FileColumn("integer", "update it was made in; default: 1"),
    "length": FileColumn("integer", "response tokens; default: those of the token columns, else 1"),
    "logp_sampled": FileColumn("numbers", "log-probability of each response token when sampled"),
    "advantage": FileColumn("number", "an advantage to compare with", nulls=True),
    "task_id": FileColumn("text", "shown on the page", nulls=True),
    "family": FileColumn("text", "shown on the page, which can be filtered by it", nulls=True),
    "instruction": FileColumn("text", "shown on the page", nulls=True),
}
"""Every column that is read. Besides: `tokens.NAME`, numbers, any other token column a method reads."""

_KINDS = {
    "id": lambda t: pt.is_integer(t) or _is_text(t),
    "integer": pt.is_integer,
    "number": lambda t: pt.is_integer(t) or pt.is_floating(t),
    "truth": pt.is_boolean,
    "text": lambda t: _is_text(t),
    "numbers": lambda t: (pt.is_list(t) or pt.is_large_list(t)) and pt.is_floating(t.value_type),
}


def _is_text(type_: pa.DataType) -> bool:
    return pt.is_string(type_) or pt.is_large_string(type_)


class TrajectoryFile:
    """A file whose columns have been checked; its rows are read, and checked, update by update.

    Attributes:
        path: Where it is.
        tokens: Token columns it has.
        ignored: Columns that mean nothing here, each with the name it may be meant for.
    """

    def __init__(self, path: Path) -> None:
        """Opens `path`.

        Raises:
            EvalError: It is no parquet file, lacks a column, or has one of the wrong type.
        """
        if not path.is_file():
            raise EvalError(f"no file {path}: give a parquet file of trajectories (docs/replay.md)")
        try:
            self._file = pq.ParquetFile(path)
        except pa.ArrowInvalid as error:
            raise EvalError(f"{path} is no parquet file ({error}): see docs/replay.md") from error
        self.path = path
        schema = self._file.schema_arrow
        names = schema.names
        self._token_of = {
            name: name.removeprefix(TOKEN_PREFIX) for name in names if name.startswith(TOKEN_PREFIX)
        }
        if "logp_sampled" in names:
            self._token_of["logp_sampled"] = "logp_sampled"
        self.tokens = frozenset(self._token_of.values())
        known = {**SCHEMA, **{name: SCHEMA["logp_sampled"] for name in self._token_of}}
        self._columns = [name for name in names if name in known]
        unknown = [name for name in names if name not in known]
        absent = [name for name in SCHEMA if name not in names]
        self.ignored = {name: did_you_mean(name, absent).partition(" known")[0] for name in unknown}
        for name, column in SCHEMA.items():
            if column.needed and name not in names:
                raise EvalError(f"{path}: no column {name!r}{did_you_mean(name, unknown or names)}")
        if not {"anchor", "observation"} & set(names):
            raise EvalError(
                f"{path}: no column 'anchor' and none 'observation'; give at least one "
                f"(columns that mean nothing here: {', '.join(unknown) or 'none'})"
            )
        for name in self._columns:
            kind, type_ = known[name].kind, schema.field(name).type
            if not _KINDS[kind](type_):
                raise EvalError(
                    f"{path}: column {name!r} has type {type_}, expected {kind}; convert the column"
                )
        self._nulls = frozenset(name for name in self._columns if known[name].nulls)

    def updates(self) -> list[int]:
        """Returns the updates there are, in order."""
        return sorted(set(np.concatenate([np.zeros(0, np.int64), *self._updates()]).tolist()))

    def read(self, updates: range | None = None) -> Iterator[Recorded]:
        """Yields update after update; no more than one is in memory, with the row groups it lies in.

        Args:
            updates: Only these.

        Raises:
            EvalError: Rows that form no whole trajectories, or values that cannot be; the row is named.
        """
        by_row_group = self._updates()
        start = np.cumsum([0, *(len(numbers) for numbers in by_row_group)])
        for update in self.updates():
            if updates is not None and update not in updates:
                continue
            parts, rows = [], []
            for i, numbers in enumerate(by_row_group):
                inside = np.flatnonzero(numbers == update)
                if len(inside):
                    parts.append(self._file.read_row_group(i, columns=self._columns).take(inside))
                    rows.append(start[i] + inside)
            yield self._recorded(update, pa.concat_tables(parts), np.concatenate(rows))

    def _updates(self) -> list[np.ndarray]:
        """int [rows] for every row group."""
        sizes = [self._file.metadata.row_group(i).num_rows for i in range(self._file.num_row_groups)]
        if "update" not in self._columns:
            return [np.ones(size, np.int64) for size in sizes]
        parts = [self._file.read_row_group(i, columns=["update"])["update"] for i in range(len(sizes))]
        first = 0
        for part in parts:
            self._check_nulls("update", part, np.arange(first, first + len(part)))
            first += len(part)
        return [part.to_numpy() for part in parts]

    def _recorded(self, update: int, data: pa.Table, rows: np.ndarray) -> Recorded:
        for name in data.column_names:
            if name not in self._nulls:
                self._check_nulls(name, data[name], rows)
        group, trajectory = codes(data["group"].to_pylist()), codes(data["trajectory"].to_pylist())
        length, tokens = self._tokens(data, rows)
        reward = data["reward"].to_numpy().astype(np.float64)
        columns = {
            name: self._values(data, name)
            for name in ("anchor", "observation", "next_anchor", "valid", "votes")
        }
        try:
            table = StepTable(
                group=group,
                trajectory=trajectory,
                t=data["t"].to_numpy(),
                reward=reward,
                outcome=_outcome(data, trajectory, reward),
                success=data["success"].to_numpy(),
                action=data["action"].to_pylist(),
                length=length,
                tokens=tokens,
                **{**columns, "anchor": columns["anchor"] or columns["observation"]},
            )
        except ValueError as error:
            raise self._in_the_file(error, data, trajectory, rows) from error
        recorded = data["advantage"].to_numpy().astype(np.float64) if "advantage" in self._columns else None
        return Recorded(update, table, rows, _facts(data, group, trajectory), recorded)

    def _values(self, data: pa.Table, name: str) -> list | np.ndarray | None:
        if name not in self._columns:
            return None
        if name in ("valid", "votes"):
            return data[name].to_numpy()
        return [TERMINAL if value is None else value for value in data[name].to_pylist()]

    def _tokens(self, data: pa.Table, rows: np.ndarray) -> tuple[np.ndarray | None, dict[str, np.ndarray]]:
        """Length of each row and the token columns, which must agree in every row."""
        said = "length" if "length" in self._columns else None
        length = data["length"].to_numpy() if said else None
        tokens = {}
        for column, name in self._token_of.items():
            lists = data[column].combine_chunks()
            counts = pc.list_value_length(lists).to_numpy()
            if length is None:
                said, length = column, counts.astype(np.int64)
            bad = np.flatnonzero(counts != length)
            if len(bad):
                i = bad[0]
                raise EvalError(
                    f"{self.path}: row {rows[i]}: {counts[i]} numbers in {column!r}, but {length[i]} by "
                    f"{said!r}; give one per response token"
                )
            tokens[name] = pc.list_flatten(lists).to_numpy().astype(np.float64)
        return length, tokens

    def _check_nulls(self, name: str, column: pa.ChunkedArray, rows: np.ndarray) -> None:
        if column.null_count:
            row = rows[np.flatnonzero(pc.is_null(column).to_numpy())[0]]
            raise EvalError(f"{self.path}: row {row}: {name} is missing; every row needs one")

    def _in_the_file(
        self, error: ValueError, data: pa.Table, trajectory: np.ndarray, rows: np.ndarray
    ) -> EvalError:
        """The table's error, which numbers rows and trajectories of its own, in the file's rows and names."""
        text = str(error).removeprefix("StepTable.")
        row = re.search(r"\brow (\d+)", text)
        if row:
            return EvalError(
                f"{self.path}: {text.replace(row[0], f'row {rows[int(row[1])]}', 1)} (rows count from 0)"
            )
        found = re.search(r"\btrajectory (\d+)(?::? step (-?\d+))?", text)
        if not found:
            return EvalError(f"{self.path}: {text}")
        own = np.flatnonzero(trajectory == int(found[1]))
        # One value per trajectory was expected: the first row, and the first that differs.
        if found[2] is None:
            values = data[text.partition(":")[0]].to_pylist()
            named = [own[0], next(i for i in own if values[i] != values[own[0]])]
            two = " and ".join(repr(values[i]) for i in named)
            text = re.sub(r"\([^)]* and [^)]*\)", lambda _: f"({two})", text, count=1)
        else:
            t = data["t"].to_numpy()[own]
            named = own[t == int(found[2])]
            if not len(named):  # missing: the row that comes after it
                named = own[[np.argmin(np.where(t > int(found[2]), t, np.inf))]]
        name = data["trajectory"][int(own[0])].as_py()
        text = text.replace(f"trajectory {found[1]}", f"trajectory {name!r}", 1)
        where = ", ".join(str(rows[i]) for i in named)
        return EvalError(f"{self.path}: row {where}: {text} (rows count from 0)")


def _outcome(data: pa.Table, trajectory: np.ndarray, reward: np.ndarray) -> np.ndarray:
    if "outcome" in data.column_names:
        return data["outcome"].to_numpy().astype(np.float64)
    return np.bincount(trajectory, reward)[trajectory] if len(reward) else reward


def _facts(data: pa.Table, group: np.ndarray, trajectory: np.ndarray) -> Mapping[int, Facts]:
    """Facts of each trajectory, from its first row."""
    texts = {
        name: data[name].to_pylist()
        for name in ("task_id", "family", "instruction")
        if name in data.column_names
    }
    facts: dict[int, Facts] = {}
    members: dict[int, int] = {}
    for row in np.unique(trajectory, return_index=True)[1].tolist():
        index = members[int(group[row])] = members.get(int(group[row]), -1) + 1
        names = (data["group"][row].as_py(), data["trajectory"][row].as_py())
        facts[int(trajectory[row])] = Facts(*names, index, **{k: v[row] or "" for k, v in texts.items()})
    return facts
