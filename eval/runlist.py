"""Run folders side by side: what is in a folder of runs, and how two runs differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from configs.neutral import NOTHING, effect
from eval.compare import Comparison, compare
from eval.experiments.folder import state_of
from eval.result import EvalError
from eval.runfolder import RunFolder, leaves


@dataclass(frozen=True)
class ListedRun:
    """A run folder at a glance.

    Attributes:
        path: The folder.
        run: Its content; None if that cannot be read.
        state: finished, stopped early, unfinished, or why it cannot be read.
        damaged: What is lost, a sentence each.
    """

    path: Path
    run: RunFolder | None
    state: str
    damaged: Sequence[str]


def find_runs(folder: Path) -> Iterator[Path]:
    """Yields the run folders in and below a folder, sorted; the folders of runs are not searched."""
    if (folder / "config.json").is_file():
        yield folder
        return
    for below in sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")):
        yield from find_runs(below)


def entry(path: Path) -> ListedRun:
    """Reads a run folder, whatever version wrote it and however it ended."""
    try:
        run = RunFolder.read(path)
    except EvalError as error:
        return ListedRun(path, None, str(error), ())
    planned = run.get("train.updates")
    state = "unfinished" if planned is None else state_of(path, planned)
    return ListedRun(path, run, "stopped early" if state == "stopped" else state, tuple(damages(path)))


def damages(path: Path) -> Iterator[str]:
    """Yields what a crash has cost: half a record at the end, files of trajectories cut off."""
    metrics = path / "metrics.jsonl"
    if metrics.is_file():
        content = metrics.read_bytes()
        torn = len(content) - content.rfind(b"\n") - 1
        if torn:
            yield f"metrics.jsonl ends in half a record ({torn} bytes); all before it is there"
    for file in sorted((path / "trajectories").glob("*.parquet")):
        try:
            pq.read_metadata(file)
        except (pa.ArrowInvalid, OSError):
            yield f"trajectories/{file.name} is cut off: the trajectories of update {int(file.stem)} are lost"


def config_differences(a: RunFolder, b: RunFolder) -> list[tuple[str, Any, Any]]:
    """Returns (option, value in a, value in b) where they differ; `…` where a version has no such option.

    Options that change no figure are left out.
    """
    first, second = dict(leaves(a.config)), dict(leaves(b.config))
    keys = [key for key in {**first, **second} if effect(key) != NOTHING]
    pairs = [(key, first.get(key, "…"), second.get(key, "…")) for key in keys]
    return [(key, x, y) for key, x, y in pairs if x != y]


def last_values(run: RunFolder) -> dict[str, float]:
    """Returns each metric's last value."""
    return {name: value for record in run.metrics for name, value in record.items() if name != "update"}


@dataclass(frozen=True)
class Evaluations:
    """Two runs' evaluations of one kind: both starting policies, or both trained ones."""

    label: str
    a: Any
    b: Any
    paired: Comparison | None


def evaluations(a: RunFolder, b: RunFolder) -> list[Evaluations]:
    """Compares what both have evaluated; paired where they played the same tasks."""
    found = []
    for label, x, y in (("before", a.before, b.before), ("after", a.after, b.after)):
        if x is None or y is None:
            continue
        same = x.task_ids == y.task_ids
        found.append(Evaluations(label, x, y, compare(x, y) if same else None))
    return found
