"""One row per trajectory of a run, in memory, so that filters and pages cost milliseconds at any size."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb

from eval.view.files import NotWhole, open_file
from eval.view.query import PAGE, Query

NEEDED = (
    *("update", "task_id", "family", "instruction", "group", "index", "trajectory", "t"),
    *("success", "truncated", "action", "valid", "advantage"),
)
"""Columns without which a file cannot be listed."""
_TABLES = """
CREATE TABLE entries (
    file VARCHAR, "update" BIGINT, trajectory BIGINT, "group" BIGINT, "index" BIGINT, task_id VARCHAR,
    family VARCHAR, instruction VARCHAR, success BOOLEAN, truncated BOOLEAN, steps BIGINT, invalid BIGINT,
    credited BIGINT, largest DOUBLE, advantage DOUBLE[], actions VARCHAR);
CREATE TABLE disputes (
    methods VARCHAR, "update" BIGINT, trajectory BIGINT, disagreement DOUBLE, spread DOUBLE, opposite BIGINT);
"""
_ADD = """
INSERT INTO entries SELECT ?, "update", trajectory, any_value("group"), any_value("index"),
    any_value(task_id), any_value(family), any_value(instruction), any_value(success), any_value(truncated),
    count(*), count(*) FILTER (NOT valid), count(*) FILTER ({credited}), max(abs(advantage)),
    list(advantage ORDER BY t), string_agg(action, chr(10) ORDER BY t)
FROM rows GROUP BY "update", trajectory
"""
_ORDERS = {
    "newest": 'e."update" DESC',
    "oldest": 'e."update"',
    "longest": "e.steps DESC",
    "largest": "e.largest DESC",
    "credited": "e.credited DESC",
    "disputed": "d.disagreement DESC NULLS LAST, d.spread DESC NULLS LAST",
}
_TIES = 'e."update" DESC, e."group", e."index"'


class TrajectoryIndex:
    """The trajectories of one run; `refresh` takes in what a running run has added."""

    def __init__(self, folder: Path) -> None:
        """Opens an empty index.

        Args:
            folder: The run's `trajectories/`.
        """
        self._folder = folder
        self._lock = threading.Lock()  # a connection serves one thread at a time
        self._db = duckdb.connect(config={"threads": 1})
        self._db.execute(_TABLES)
        self._seen: dict[str, tuple[int, int]] = {}
        self._files: dict[int, Path] = {}
        self._lost: dict[str, str] = {}

    def refresh(self) -> None:
        """Reads files that are new or have changed, and forgets those that are gone."""
        with self._lock:
            names = {path.name: path for path in sorted(self._folder.glob("*.p*")) if _is_ours(path)}
            for name in self._seen.keys() - names.keys():
                self._forget(name)
            for name, path in names.items():
                try:
                    about = path.stat()
                except FileNotFoundError:  # a finished .partial has just been renamed
                    continue
                stamp = (about.st_mtime_ns, about.st_size)
                if self._seen.get(name) != stamp:
                    self._forget(name)
                    self._seen[name] = stamp
                    self._add(path)

    @property
    def lost(self) -> list[str]:
        """What cannot be shown, a sentence for each file that is cut off or of another version."""
        return [self._lost[name] for name in sorted(self._lost)]

    def file(self, update: int) -> Path | None:
        """Returns the file of an update, None if it has none."""
        return self._files.get(update)

    def files(self) -> dict[int, Path]:
        """Returns update → file, in order."""
        with self._lock:
            return dict(sorted(self._files.items()))

    def facets(self) -> dict[str, Any]:
        """Returns `total`, `updates` in order, and `families` as name → count."""
        families = self._all("SELECT family, count(*) FROM entries GROUP BY family ORDER BY family")
        return {
            "total": sum(n for _, n in families),
            "updates": list(self.files()),
            "families": dict(families),
        }

    def page(self, query: Query) -> tuple[list[dict[str, Any]], int]:
        """Returns (the entries of the query's page, how many there are on all pages)."""
        where, values = _where(query)
        joined = (
            'FROM entries e LEFT JOIN disputes d ON d.methods = ? AND d."update" = e."update" '
            f"AND d.trajectory = e.trajectory WHERE {where}"
        )
        values = [",".join(query.methods), *values]
        total = self._all(f"SELECT count(*) {joined}", values)[0][0]
        order = f"{_ORDERS[query.sort]}, {_TIES}"
        columns = "e.* EXCLUDE (file, actions), d.disagreement, d.opposite"
        limits = [PAGE, (query.page - 1) * PAGE]
        rows = self._dicts(f"SELECT {columns} {joined} ORDER BY {order} LIMIT ? OFFSET ?", [*values, *limits])
        return rows, total

    def entry(self, update: int, trajectory: int) -> dict[str, Any] | None:
        """Returns one trajectory's entry."""
        found = self._dicts(
            'SELECT * EXCLUDE (file, actions) FROM entries WHERE "update" = ? AND trajectory = ?',
            [update, trajectory],
        )
        return found[0] if found else None

    def disputed_updates(self, methods: Sequence[str]) -> set[int]:
        """Returns the updates whose disagreement under these methods is known."""
        return {
            n
            for (n,) in self._all('SELECT DISTINCT "update" FROM disputes WHERE methods = ?', [key(methods)])
        }

    def add_disputes(
        self, methods: Sequence[str], update: int, rows: Iterable[tuple[int, float, float, int]]
    ) -> None:
        """Takes in (trajectory, disagreement, spread, steps of opposite signs) of an update."""
        with self._lock:
            self._db.executemany(
                "INSERT INTO disputes VALUES (?, ?, ?, ?, ?, ?)",
                [(key(methods), update, *row) for row in rows],
            )

    def _add(self, path: Path) -> None:
        try:
            file = open_file(path, NEEDED)
        except NotWhole as error:
            self._lost[path.name] = str(error)
            return
        siblings = [name for name in file.schema_arrow.names if name.endswith(".sibling_t")]
        rows = file.read(columns=[*NEEDED, *siblings])  # noqa: F841 (duckdb finds it by its name)
        credited = " OR ".join(f'"{name}" >= 0' for name in siblings) or "false"
        self._db.execute(_ADD.format(credited=credited), [path.name])
        found = self._db.execute('SELECT DISTINCT "update" FROM entries WHERE file = ?', [path.name])
        self._files.update({update: path for (update,) in found.fetchall()})

    def _forget(self, name: str) -> None:
        gone = [update for update, path in self._files.items() if path.name == name]
        self._db.execute("DELETE FROM entries WHERE file = ?", [name])
        for update in gone:
            self._db.execute('DELETE FROM disputes WHERE "update" = ?', [update])
            del self._files[update]
        self._seen.pop(name, None)
        self._lost.pop(name, None)

    def _all(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with self._lock:
            return self._db.execute(sql, list(values)).fetchall()

    def _dicts(self, sql: str, values: Sequence[Any]) -> list[dict[str, Any]]:
        with self._lock:
            done = self._db.execute(sql, list(values))
            names = [column[0] for column in done.description]
            return [dict(zip(names, row, strict=True)) for row in done.fetchall()]


def key(methods: Sequence[str]) -> str:
    """Returns the name under which the disagreement of some methods is kept."""
    return ",".join(methods)


def _is_ours(path: Path) -> bool:
    return path.suffix in (".parquet", ".partial") and path.stem.isdigit()


def _where(query: Query) -> tuple[str, list[Any]]:
    """Returns a condition on entries e and disputes d, and its values."""
    parts: Mapping[str, Any] = {
        'e."update" = ?': query.update,
        'e."group" = ?': query.group,
        "e.family = ?": query.family or None,
        "e.success = ?": query.outcome == "success" if query.outcome else None,
    }
    conditions = [sql for sql, value in parts.items() if value is not None]
    values = [value for value in parts.values() if value is not None]
    if query.text:
        conditions.append(
            "contains(lower(concat_ws(chr(10), e.instruction, e.task_id, e.actions)), lower(?))"
        )
        values.append(query.text)
    if query.disputed and query.methods:
        conditions.append("d.opposite > 0")
    return " AND ".join(conditions) or "true", values
