"""Reads the .wandb files that W&B leaves offline, with none of W&B's own reading code.

The format is LevelDB's log (blocks of 32 KiB; each piece has a CRC, a length and a type) behind a header of
7 bytes; each record is a protobuf message.
"""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from wandb.proto.wandb_internal_pb2 import Record

_BLOCK, _HEADER = 32768, 7
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4


def records(path: Path) -> Iterator[Record]:
    """Yields the file's records in order; ends at a piece that was cut off."""
    data = path.read_bytes()
    assert data[:4] == b":W&B", data[:8]
    at, message = _HEADER, b""
    while at + _HEADER <= len(data):
        room = _BLOCK - at % _BLOCK
        if room < _HEADER:
            at += room
            continue
        _, length, kind = struct.unpack("<IHB", data[at : at + _HEADER])
        piece = data[at + _HEADER : at + _HEADER + length]
        if len(piece) < length or kind == 0:
            return
        at += _HEADER + length
        message = piece if kind in (_FULL, _FIRST) else message + piece
        if kind in (_FULL, _LAST):
            record = Record()
            record.ParseFromString(message)
            yield record


def files(run_dir: Path) -> list[Path]:
    """The run folder's offline files, oldest first."""
    return sorted(run_dir.glob("wandb/offline-run-*/*.wandb"), key=lambda path: path.stat().st_mtime_ns)


def wait_until_written(run_dir: Path, seconds: float = 60.0) -> None:
    """Waits for each file's last record: W&B's own process may still write when `finish` has returned."""
    deadline = time.monotonic() + seconds
    while not all(any(r.WhichOneof("record_type") == "exit" for r in records(p)) for p in files(run_dir)):
        assert time.monotonic() < deadline, f"{run_dir}: no end of the run after {seconds} s"
        time.sleep(0.05)


def history(run_dir: Path) -> list[dict[str, Any]]:
    """What was logged, in order, over all files: a dictionary a step, nested keys with dots."""
    rows = []
    for path in files(run_dir):
        for record in records(path):
            if record.WhichOneof("record_type") == "history":
                rows.append(
                    {".".join(i.nested_key) or i.key: json.loads(i.value_json) for i in record.history.item}
                )
    return rows


def runs(run_dir: Path) -> list[Any]:
    """The run messages, one or more a file."""
    found = [r for path in files(run_dir) for r in records(path)]
    return [r.run for r in found if r.WhichOneof("record_type") == "run"]


def axes(run_dir: Path) -> dict[str, str]:
    """Metric (or prefix with *) → the metric on its x-axis."""
    found = [r for path in files(run_dir) for r in records(path)]
    metrics = [r.metric for r in found if r.WhichOneof("record_type") == "metric"]
    return {m.glob_name or m.name: m.step_metric for m in metrics}
