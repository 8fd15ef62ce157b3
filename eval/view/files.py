"""Opening a trajectory file that may be cut off, or of another version."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from eval.result import EvalError


class NotWhole(EvalError):
    """A file that cannot be shown; the message says what is lost with it."""


def open_file(path: Path, needed: Sequence[str]) -> pq.ParquetFile:
    """Opens a trajectory file for reading.

    A parquet file says at its end where its columns lie and is written in one piece, one update per file: cut
    off, none of its steps is complete.

    Args:
        path: The file.
        needed: Columns it must have.

    Raises:
        NotWhole: it is cut off, or lacks a column.
    """
    size = path.stat().st_size
    lost = f"update {int(path.stem)} is not shown ({path.name}, {size / 1e6:.1f} MB)"
    if path.suffix == ".partial":
        raise NotWhole(f"{lost}: it is being written, or the run was killed while writing it")
    try:
        file = pq.ParquetFile(path)
    except (pa.ArrowInvalid, OSError) as error:
        reason = "it is empty" if size == 0 else "its end is missing: writing or copying it was cut short"
        raise NotWhole(
            f"{lost}: {reason}. All its trajectories are lost; copy it again if you can"
        ) from error
    missing = [name for name in needed if name not in file.schema_arrow.names]
    if missing:
        raise NotWhole(
            f"{lost}: it has no column {', '.join(missing)}, so another version wrote it. Use that version's "
            "viewer, or play the update again"
        )
    return file


def read_columns(file: Path, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Returns columns of a file as arrays."""
    table = pq.read_table(file, columns=list(names))
    return {name: table[name].to_numpy() for name in names}
