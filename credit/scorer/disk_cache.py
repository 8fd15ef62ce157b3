"""Scores kept in a file between runs, so that no pair of texts is scored twice by one model."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from credit.scorer.around import Account, Around, tokens
from credit.scorer.base import Pairs

_FORMAT = 0x5349424C
"""`application_id` of the file, so that another program's database is never taken for one of ours."""

_KEYS_PER_QUERY = 500


class DiskCache(Around):
    """Keeps scores in a SQLite file under a digest of (the scorer's identity, first text, second text).

    Several processes may share the file: reading and writing are short transactions that wait for each other.
    Scores come back bit by bit as they were written.
    """

    def __init__(self, scorer: Any, account: Account, path: str | Path) -> None:
        """Opens the file, or makes it.

        Raises:
            ValueError: the file is corrupt, not ours, or cannot be opened or made.
        """
        super().__init__(scorer, account)
        self.path = Path(path).expanduser()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ValueError(f"scorer cache {self.path}: its folder cannot be made: {error}") from error
        with self._open() as file:
            self._prepare(file)

    def score(self, pairs: Pairs) -> np.ndarray:
        """float [len(pairs)]; see `PairScorer`."""
        keys = [self._key(*pair) for pair in pairs]
        with self._open() as file:
            known = self._read(file, keys)
        result = np.array([known.get(key, np.nan) for key in keys], dtype=np.float64)
        missing = np.flatnonzero(np.isnan(result)).tolist()
        self.account.cache += tokens(self, [p for p, key in zip(pairs, keys, strict=True) if key in known])
        if missing:
            result[missing] = self.scorer.score([pairs[i] for i in missing])
            fresh = [(keys[i], float(result[i])) for i in missing if not np.isnan(result[i])]
            with self._open() as file:
                file.executemany("INSERT OR IGNORE INTO scores VALUES (?, ?)", fresh)
        return result

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """One transaction on a connection of its own, which neither threads nor forks can spoil."""
        try:
            with closing(sqlite3.connect(self.path, timeout=60)) as file, file:
                yield file
        except sqlite3.OperationalError as error:
            raise ValueError(f"scorer cache {self.path}: {error}; name another file as `cache`") from error
        except sqlite3.DatabaseError as error:
            raise ValueError(
                f"scorer cache {self.path}: corrupt ({error}); delete it, or name another file as `cache`"
            ) from error

    def _prepare(self, file: sqlite3.Connection) -> None:
        file.execute("BEGIN IMMEDIATE")  # two processes may make the file at once
        (found,) = file.execute("PRAGMA application_id").fetchone()
        (tables,) = file.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if not found and not tables:
            file.execute("CREATE TABLE scores (key BLOB PRIMARY KEY, score REAL NOT NULL) WITHOUT ROWID")
            file.execute(f"PRAGMA application_id = {_FORMAT}")
        elif found != _FORMAT:
            raise ValueError(
                f"scorer cache {self.path}: a database of something else (application_id {found}, expected "
                f"{_FORMAT}); name another file as `cache`"
            )
        (state,) = file.execute("PRAGMA quick_check(1)").fetchone()
        if state != "ok":
            raise sqlite3.DatabaseError(state.splitlines()[-1])

    def _read(self, file: sqlite3.Connection, keys: list[bytes]) -> dict[bytes, float]:
        known: dict[bytes, float] = {}
        for first in range(0, len(keys), _KEYS_PER_QUERY):
            some = keys[first : first + _KEYS_PER_QUERY]
            marks = ",".join("?" * len(some))
            known |= file.execute(f"SELECT key, score FROM scores WHERE key IN ({marks})", some).fetchall()
        wrong = [score for score in known.values() if not isinstance(score, float) or not 0 <= score <= 1]
        if wrong:
            raise sqlite3.DatabaseError(f"it holds the score {wrong[0]!r}, expected [0, 1]")
        return known

    def _key(self, first: str, second: str) -> bytes:
        text = f"{self.identity}\n{len(first)}:{first}{second}"
        return blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest()
