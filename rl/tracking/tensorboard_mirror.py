"""A run in TensorBoard: event files in `tensorboard/` of the run folder, one update per step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from torch.utils.tensorboard import SummaryWriter

from rl.tracking.tracker import Record
from rl.tracking.trajectory_files import read_trajectories, trajectories_file


class TensorboardMirror:
    """Scalars of every record, histograms of the updates whose trajectories were written."""

    def __init__(self, run_dir: Path, report: Callable[[str], None]) -> None:
        """Writes nothing yet."""
        self._dir, self._report = run_dir, report
        self._writer: SummaryWriter | None = None

    def begin(self, kept: Sequence[Record], resume_update: int | None) -> None:
        """Opens the files; what they hold of later updates is marked as void (TensorBoard's purge step)."""
        folder = self._dir / "tensorboard"
        known = folder.is_dir()
        purge = None if resume_update is None else (resume_update + 1 if resume_update else 0)
        self._writer = SummaryWriter(str(folder), purge_step=purge)
        for record in [] if known else kept:
            self.log(record)

    def log(self, record: Record) -> None:
        """Writes a record."""
        update = int(record["update"])
        for name, value in record.items():
            if name != "update":
                self._writer.add_scalar(name, value, update)
        path = trajectories_file(self._dir, update)
        if path.is_file() and any(name.startswith("credit/") for name in record):
            try:
                for name, values in read_trajectories(path, 0).histograms.items():
                    self._writer.add_histogram(name, values, update)
            except ValueError as error:
                self._report(str(error))
        self._writer.flush()

    def close(self) -> None:
        """Closes the files."""
        self._writer.close()
