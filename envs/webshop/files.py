"""Reads JSON files, packed or not: whole, or record by record where a file may be larger than memory."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from envs.webshop.product import ShopError

_CHUNK = 1 << 20  # characters read at once
_LONGEST = 1 << 25  # characters of a record; where no record ends in so many, something is not closed
_GAP = re.compile(r"\s*")
_decode = json.JSONDecoder().raw_decode
_AGAIN = "Get the file again."


def read_json(path: str | Path, what: str) -> Any:
    """Reads a whole file; `what` it holds is said in errors.

    Raises:
        ShopError: it is not there, or damaged.
    """
    with _opened(path, what) as file:
        try:
            return json.load(file)
        except (OSError, EOFError, ValueError) as error:
            raise ShopError(f"{str(path)!r} ({what}) is damaged: {error}. {_AGAIN}") from error


def read_records(path: str | Path, what: str) -> Iterator[Any]:
    """Yields the items of a file that is one list, keeping no more than one in memory.

    Raises:
        ShopError: it is not there, no list, or damaged; the message tells after which record.
    """
    number = 0
    with _opened(path, what) as file:
        try:
            for record in _items(file):
                number += 1
                yield record
        except (OSError, EOFError, ValueError) as error:
            raise ShopError(
                f"{str(path)!r} ({what}) is damaged after record {number}: {error}. {_AGAIN}"
            ) from error


def _opened(path: str | Path, what: str) -> TextIO:
    try:
        if Path(path).suffix == ".gz":
            return gzip.open(path, "rt", encoding="utf-8")
        return Path(path).open(encoding="utf-8")
    except FileNotFoundError as error:
        raise ShopError(
            f"no file {str(path)!r} ({what}). `python run.py data webshop --generate` makes a shop without."
        ) from error
    except OSError as error:
        raise ShopError(f"{str(path)!r} ({what}) cannot be read: {error}.") from error


def _items(file: TextIO) -> Iterator[Any]:
    text = file.read(_CHUNK).lstrip()
    if not text.startswith("["):
        raise ValueError(f"it starts with {text[:20]!r}, expected a list")
    at, first = 1, True
    while True:
        try:
            found = _next(text, at, first)
        except (ValueError, IndexError) as error:
            more = file.read(_CHUNK)
            if not more or len(text) - at > _LONGEST:
                raise ValueError(str(error) if more else f"it ends within the list ({error})") from None
            text, at = text[at:] + more, 0
            continue
        if found is None:
            return
        yield found[0]
        at, first = found[1], False


def _next(text: str, at: int, first: bool) -> tuple[Any, int] | None:
    """Returns the list's next item and where it ends, None after the last; fails where the text stops."""
    at = _GAP.match(text, at).end()
    if text[at] == "]":
        return None
    if not first:
        if text[at] != ",":
            raise ValueError(f"{text[at : at + 20]!r} where , or ] was expected")
        at = _GAP.match(text, at + 1).end()
    return _decode(text, at)
