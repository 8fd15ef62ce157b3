"""Records metrics in `metrics.jsonl`; Weights & Biases, TensorBoard and others mirror them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from rl.tracking.metrics import describe
from rl.tracking.trajectory_files import set_aside_damaged

METRICS_FILE = "metrics.jsonl"
Record = dict[str, float]
"""`update` and the metrics logged about it."""


class Mirror(Protocol):
    """Another place that shows what the run folder holds. Its own trouble never ends a run."""

    def begin(self, kept: Sequence[Record], resume_update: int | None) -> None:
        """Is told once, before anything is logged, what the record holds already.

        Args:
            kept: Records that stay, in order.
            resume_update: Records of later updates will come again; None in a new run.
        """

    def log(self, record: Record) -> None:
        """Shows a record; updates need not come in order (an evaluation may be late)."""

    def close(self) -> None:
        """Finishes what is under way."""


class Tracker:
    """Appends one record per call to `metrics.jsonl`, then hands it to the mirrors."""

    def __init__(
        self,
        run_dir: Path,
        *,
        mirrors: Sequence[Mirror] = (),
        resume_update: int | None = None,
        report: Callable[[str], None] = print,
    ) -> None:
        """Opens the run's record.

        Args:
            run_dir: The run folder.
            mirrors: Get every record too.
            resume_update: Continue the record after this update: later ones are dropped, because they
                will be made again; 0 drops all. None starts a new record.
            report: Gets one sentence about what a resumed record has lost.

        Raises:
            FileExistsError: a new record where one exists.
        """
        self._path = run_dir / METRICS_FILE
        self._mirrors = list(mirrors)
        run_dir.mkdir(parents=True, exist_ok=True)
        if resume_update is None and self._path.exists():
            raise FileExistsError(f"{self._path} exists: resume that run, or choose another run folder")
        kept: list[Record] = []
        if resume_update is not None:
            kept = _drop_after(self._path, resume_update, report)
            set_aside_damaged(run_dir, report)
        for mirror in self._mirrors:
            mirror.begin(kept, resume_update)

    def log(self, update: int, metrics: Mapping[str, float]) -> None:
        """Records an update's metrics; one that is not a finite number is left out.

        Raises:
            KeyError: a metric without an entry in `rl.tracking.metrics.METRICS`.
        """
        for name in metrics:
            describe(name)
        finite = {name: value for name, value in metrics.items() if math.isfinite(value)}
        record = {"update": update, **finite}
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
        for mirror in self._mirrors:
            mirror.log(record)

    def close(self) -> None:
        """Lets the mirrors finish."""
        for mirror in self._mirrors:
            mirror.close()


class NoTracker:
    """In the place of a `Tracker` in the processes of a run that write nothing."""

    def log(self, update: int, metrics: Mapping[str, float]) -> None:
        """See `Tracker.log`."""

    def close(self) -> None:
        """See `Tracker.close`."""


def read_metrics(path: Path) -> list[Record]:
    """Reads a metrics.jsonl; half a line at the end (a killed run) is left out."""
    return [json.loads(line) for line in _whole(path.read_bytes()).decode("utf-8").splitlines()]


def _whole(content: bytes) -> bytes:
    return content[: content.rfind(b"\n") + 1]


def _drop_after(path: Path, update: int, report: Callable[[str], None]) -> list[Record]:
    """Rewrites the record without what will be made again; returns what stays."""
    if not path.exists():
        return []
    content = path.read_bytes()
    torn = len(content) - len(_whole(content))
    records = read_metrics(path)
    # After update 0 means from the start: the first evaluation, logged as update 0, is made again too.
    kept = [record for record in records if 0 < update >= record["update"]]
    partial = path.with_suffix(".partial")
    partial.write_text("".join(json.dumps(record) + "\n" for record in kept), encoding="utf-8")
    partial.replace(path)
    if torn:
        report(f"{path} ended in half a record ({torn} bytes, the run was killed while writing): left out")
    if len(kept) < len(records):
        report(f"{len(records) - len(kept)} records after update {update} are made again ({path.name})")
    return kept
