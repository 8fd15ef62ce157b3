"""The folder of one run of a sweep or an ablation: how far it is, by the files alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

State = Literal["new", "unfinished", "stopped", "finished"]
STOPPED_FILE = "stopped.json"


@dataclass(frozen=True)
class Run:
    """One run that is wanted.

    Attributes:
        name: Of its folder.
        folder: The run folder.
        arguments: What `run.py train` gets: the experiment and its overrides.
        group: What it is compared under: the point or variant, as a label.
        seed: Its seed.
        updates: It has when finished.
        point: Option → value, or variant → name; a row of the table.
    """

    name: str
    folder: Path
    arguments: tuple[str, ...]
    group: str
    seed: int
    updates: int
    point: Mapping[str, Any]

    @property
    def state(self) -> State:
        """How far it is."""
        return state_of(self.folder, self.updates)

    def series(self, metric: str) -> list[tuple[int, float]]:
        """Returns (update, value) of a metric as far as logged, in the order it was logged."""
        path = self.folder / "metrics.jsonl"
        if not path.is_file():
            return []
        text = path.read_text(encoding="utf-8")
        records = [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
        return [(int(record["update"]), record[metric]) for record in records if metric in record]

    def value(self, metric: str) -> float | None:
        """Returns the metric's last value."""
        series = self.series(metric)
        return series[-1][1] if series else None

    @property
    def update(self) -> int:
        """Updates done so far."""
        path = self.folder / "metrics.jsonl"
        if not path.is_file():
            return 0
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        whole = [line for line in lines if line.endswith("\n")]
        return int(json.loads(whole[-1])["update"]) if whole else 0


def state_of(folder: Path, updates: int) -> State:
    """How far a run of so many updates is; finished when its summary is there, which is written last."""
    summary = read_json(folder / "summary.json")
    if summary and summary.get("updates", 0) >= updates:
        return "finished"
    if (folder / STOPPED_FILE).is_file():
        return "stopped"
    return "unfinished" if (folder / "config.json").is_file() else "new"


def read_json(path: Path) -> dict[str, Any] | None:
    """Returns a JSON document, None if it is not there or not complete yet."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, json.JSONDecodeError):
        return None
