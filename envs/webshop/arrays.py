"""Folders of arrays: they appear only when completely written; opening checks them and memory-maps them."""

from __future__ import annotations

import os
import shutil
import uuid
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from envs.webshop.product import ShopError


@contextmanager
def appearing(folder: Path) -> Iterator[Path]:
    """Gives a folder to write into, which takes the place of `folder` at the end of the block.

    Nothing is left of it if the block fails. Of several processes that write one folder, the first one wins.

    Raises:
        OSError: it cannot be written, or `folder` is there by now and not empty.
    """
    partial = folder.parent / f".{folder.name}.partial-{uuid.uuid4().hex}"
    partial.mkdir()
    try:
        yield partial
        os.replace(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def write_arrays(folder: Path, arrays: Mapping[str, np.ndarray]) -> dict[str, int]:
    """Writes `NAME.npy` for each array; returns their checksums (CRC-32)."""
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    return {name: _checksum(folder / f"{name}.npy") for name in arrays}


def read_arrays(folder: Path, checksums: Mapping[str, int], remedy: str) -> dict[str, np.ndarray]:
    """Maps the arrays that `write_arrays` wrote.

    Args:
        folder: Where they are.
        checksums: As `write_arrays` returned them.
        remedy: What to do about damage, a sentence.

    Raises:
        ShopError: one is missing or damaged.
    """
    return {name: _read(folder / f"{name}.npy", checksum, remedy) for name, checksum in checksums.items()}


def _read(path: Path, checksum: int, remedy: str) -> np.ndarray:
    if not path.is_file() or _checksum(path) != checksum:
        state = "has another checksum" if path.is_file() else "is missing"
        raise ShopError(f"{str(path)!r} {state}. {remedy}")
    # A plain view: slices of the memmap class itself cost several microseconds.
    return np.asarray(np.load(path, mmap_mode="r"))


def _checksum(path: Path) -> int:
    value = 0
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            value = zlib.crc32(piece, value)
    return value
