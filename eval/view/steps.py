"""One trajectory in full, among its siblings, with what each method says of its steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from eval.report.group_view import BONUS
from eval.view.files import open_file
from eval.view.index import NEEDED
from eval.view.methods import Scored

RECORDED = "recorded"
_HEAVY = {"commands", "next_commands", "prompt_ids", "response_ids", "logp_sampled", "token_advantage"}
_SENT = ("prompt_ids", "fresh", "response_ids", "logp_sampled", "finish", "commands")
_SHOWN = ("observation", "anchor", "thought", "well_formed", "admissible", "reward", "score", "return")


@dataclass(frozen=True, slots=True)
class Place:
    """A step of a sibling: `trajectory` is its number in the update, `index` the one in the group."""

    trajectory: int
    index: int
    t: int


@dataclass(frozen=True, slots=True)
class Match:
    """The sibling's step that a method matched a step with; `similarity` is None if none is recorded."""

    method: str
    place: Place
    similarity: float | None


@dataclass(frozen=True, slots=True)
class StepView:
    """A step; `advantage` has one value a series, in their order.

    Attributes:
        row: The columns of the file, without the long ones.
        advantage: Of each series.
        matches: Of each method that matches steps.
        peers: Other steps of the group at the same anchor.
        shaped: Return before and after shaping, where both are recorded and differ.
    """

    row: Mapping[str, Any]
    advantage: tuple[float, ...]
    matches: tuple[Match, ...]
    peers: tuple[Place, ...]
    shaped: tuple[float, float] | None

    @property
    def disputed(self) -> bool:
        """Whether some two series give it opposite signs."""
        return min(self.advantage) < 0 < max(self.advantage)


@dataclass(frozen=True)
class TrajectoryView:
    """A trajectory.

    Attributes:
        facts: Columns that all its steps share.
        steps: In time order.
        siblings: (trajectory, index, success, steps) of every member of the group, itself included.
        series: Names: the recorded advantage, then the methods.
        largest: Largest |advantage| of each series in the group, 1 if all are 0: the end of its colours.
    """

    facts: Mapping[str, Any]
    steps: Sequence[StepView]
    siblings: Sequence[tuple[int, int, bool, int]]
    series: Sequence[str]
    largest: Sequence[float]


def trajectory_view(file: Path, trajectory: int, scored: Scored | None) -> TrajectoryView | None:
    """Returns a trajectory of a file, None if the file has no such one.

    Args:
        file: An update's parquet file.
        trajectory: Its number in the file.
        scored: What methods say of that update; None to show the recorded advantage alone.

    Raises:
        NotWhole: the file is cut off or of another version.
    """
    rows = _rows(file, file.stat().st_mtime_ns)
    own = [row for row in rows if row["trajectory"] == trajectory]
    if not own:
        return None
    group = [row for row in rows if row["group"] == own[0]["group"]]
    columns = {RECORDED: {name: [row[name] for row in rows] for name in rows[0] if "." in name}}
    advantage = [[row["advantage"] for row in rows]]
    for method, result in zip(scored.methods, scored.results, strict=True) if scored else ():
        columns[method.name] = result.columns
        advantage.append(result.advantage.tolist())
    in_group = [row["row"] for row in group]
    own.sort(key=lambda row: row["t"])
    return TrajectoryView(
        facts=own[0],
        steps=[_step(row, group, advantage, columns) for row in own],
        siblings=_siblings(group),
        series=list(columns),
        largest=[max(abs(values[i]) for i in in_group) or 1.0 for values in advantage],
    )


def step_rows(file: Path, trajectory: int) -> list[dict[str, Any]]:
    """Returns the steps of a trajectory with every column, in time order.

    Raises:
        NotWhole: the file is cut off or of another version.
    """
    open_file(file, [*NEEDED, *_SHOWN, *_SENT])
    rows = pq.read_table(file, filters=[("trajectory", "=", trajectory)]).to_pylist()
    return sorted(rows, key=lambda row: row["t"])


@lru_cache(maxsize=8)
def _rows(file: Path, _: int) -> list[dict[str, Any]]:
    """All steps of a file without the long columns, each with its `row` number; kept for the latest files."""
    opened = open_file(file, [*NEEDED, *_SHOWN])
    names = [name for name in opened.schema_arrow.names if name not in _HEAVY]
    rows = opened.read(columns=names).to_pylist()
    return [{"row": number, **row} for number, row in enumerate(rows)]


def _step(
    row: Mapping[str, Any],
    group: Sequence[Mapping[str, Any]],
    advantage: Sequence[Sequence[float]],
    columns: Mapping[str, Mapping[str, Sequence[Any]]],
) -> StepView:
    index_of = {other["trajectory"]: other["index"] for other in group}
    number = row["row"]
    matches = []
    for series, values in columns.items():
        for name in values:
            if name.endswith(".sibling_t") and values[name][number] >= 0:
                stage = name.removesuffix(".sibling_t")
                sibling = int(values[f"{stage}.sibling"][number])
                place = Place(sibling, index_of[sibling], int(values[name][number]))
                similarity = values.get(f"{stage}.similarity")
                who = stage if series == RECORDED else series
                matches.append(Match(who, place, None if similarity is None else similarity[number]))
    peers = [
        Place(other["trajectory"], other["index"], other["t"])
        for other in group
        if other["anchor"] == row["anchor"] and other["row"] != number
    ]
    before = row["return"] - row[BONUS] if BONUS in row else row["return"]
    return StepView(
        row=row,
        advantage=tuple(values[number] for values in advantage),
        matches=tuple(matches),
        peers=tuple(peers),
        shaped=(before, row["return"])
        if before != row["return"] and row["return"] == row["return"]
        else None,
    )


def _siblings(group: Sequence[Mapping[str, Any]]) -> list[tuple[int, int, bool, int]]:
    members: dict[int, tuple[int, int, bool, int]] = {}
    for row in group:
        number, index, success, steps = members.get(
            row["trajectory"], (row["trajectory"], row["index"], row["success"], 0)
        )
        members[number] = (number, index, success, steps + 1)
    return sorted(members.values(), key=lambda member: member[1])
