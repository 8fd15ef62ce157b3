"""What mirrors show beyond metrics, read from the file of an update's trajectories."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

_COLUMNS = ("family", "task_id", "group", "index", "success", "score", "t", "action", "reward", "advantage")
TABLE_COLUMNS = (
    "update",
    "task",
    "family",
    "group",
    "index",
    "success",
    "score",
    "steps",
    "reward",
    "advantage",
    "transcript",
)


@dataclass(frozen=True)
class Trajectories:
    """One update's trajectories.

    Attributes:
        histograms: Name → values [steps]: `credit/advantage`, `credit/return`, and what credit stages left.
        table: Rows of `TABLE_COLUMNS`, the transcript in words.
    """

    histograms: dict[str, np.ndarray]
    table: list[list[Any]]


def trajectories_file(run_dir: Path, update: int) -> Path:
    """Returns the file of an update's trajectories, which need not exist."""
    return run_dir / "trajectories" / f"{update:04d}.parquet"


def read_trajectories(path: Path, rows: int) -> Trajectories:
    """Reads a file of trajectories.

    Args:
        path: The file.
        rows: Trajectories of the table, those of groups with successes and failures first.

    Raises:
        ValueError: it is damaged (cut off by a crash, for example).
    """
    try:
        file = pq.ParquetFile(path)
        credit = [f.name for f in file.schema_arrow if "." in f.name and pa.types.is_floating(f.type)]
        observed = file.read([*_COLUMNS, "observation"]).to_pylist() if rows else []
        numbers = file.read(["advantage", "return", *credit])
    except (pa.ArrowInvalid, OSError) as error:
        raise ValueError(f"{path} cannot be read ({error}): its trajectories are lost") from error
    histograms = {f"credit/{name}": finite(numbers.column(name)) for name in numbers.column_names}
    return Trajectories(
        {name: values for name, values in histograms.items() if len(values)}, _table(path, observed, rows)
    )


def set_aside_damaged(run_dir: Path, report: Callable[[str], None]) -> None:
    """Renames files of trajectories that a crash cut off, so that readers find whole ones only."""
    for path in sorted((run_dir / "trajectories").glob("*.parquet")):
        try:
            pq.read_metadata(path)
        except (pa.ArrowInvalid, OSError):
            path.rename(path.with_suffix(".damaged"))
            report(f"{path} is cut off (a crash while it was written): its trajectories are lost; set aside")


def finite(column: Any) -> np.ndarray:
    """Returns a column's finite numbers."""
    values = np.asarray(column.to_numpy(), dtype=float)
    return values[np.isfinite(values)]


def _table(path: Path, steps: list[dict[str, Any]], rows: int) -> list[list[Any]]:
    trajectories: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for step in steps:
        trajectories.setdefault((step["group"], step["index"]), []).append(step)
    wins: dict[int, set[bool]] = {}
    for (group, _), parts in trajectories.items():
        wins.setdefault(group, set()).add(parts[0]["success"])
    chosen = sorted(trajectories, key=lambda key: (len(wins[key[0]]) < 2, key))[:rows]
    return [_row(int(path.stem), trajectories[key]) for key in chosen]


def _row(update: int, steps: list[dict[str, Any]]) -> list[Any]:
    first = steps[0]
    lines = [f"{s['observation']}\n> {s['action']}  ({s['advantage']:+.2f})" for s in steps]
    return [
        update,
        first["task_id"],
        first["family"],
        first["group"],
        first["index"],
        first["success"],
        first["score"],
        len(steps),
        sum(step["reward"] for step in steps),
        float(np.mean([step["advantage"] for step in steps])),
        "\n".join(lines),
    ]
