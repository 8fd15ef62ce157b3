"""Manifests: the list of tasks that a run trained on or an evaluation played."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from envs.base import Task, task_digest
from envs.subset import Chosen
from eval.result import EvalError

FORMAT, VERSION = "sibling-tasks", 1
MOST_LISTED = 20_000
"""Of more tasks (a whole catalogue's goals) there are the counts and a hash of ids and families only: to list
them, each would have to be made."""


@dataclass(frozen=True, slots=True)
class TaskEntry:
    """One task.

    Attributes:
        id: The task's.
        family: Its family.
        digest: Of all that decides how it plays (`envs.base.task_digest`).
    """

    id: str
    family: str
    digest: str


@dataclass(frozen=True)
class Manifest:
    """Tasks that were chosen from a split, in the order they are played.

    Attributes:
        world: `env.name`.
        split: The split.
        source: Where the tasks come from, in plain values.
        subset_seed: What they were chosen with.
        of: How many the split has.
        families: Tasks of each family, 0 of one that they lack.
        hash: Of all ids, families and digests, in whatever order. Equal hashes: the same tasks.
        tasks: The tasks; None of more than `MOST_LISTED`.
    """

    world: str
    split: str
    source: Mapping[str, Any]
    subset_seed: int
    of: int
    families: Mapping[str, int]
    hash: str
    tasks: tuple[TaskEntry, ...] | None

    @classmethod
    def of_tasks(
        cls,
        chosen: Chosen,
        *,
        world: str,
        split: str,
        source: Mapping[str, Any],
        subset_seed: int,
        families: Sequence[str],
    ) -> Manifest:
        """Describes tasks that were chosen; `families` are all that there could be."""
        ids, own = chosen.names
        if len(chosen) > MOST_LISTED:
            entries = [TaskEntry(name, family, "") for name, family in zip(ids, own, strict=True)]
        else:
            entries = [TaskEntry(task.id, task.family, task_digest(task)) for task in chosen.tasks]
        counts = Counter(own)
        return cls(
            world=world,
            split=split,
            source=source,
            subset_seed=subset_seed,
            of=chosen.of,
            families={family: counts[family] for family in sorted({*families, *counts})},
            hash=_hash(entries),
            tasks=tuple(entries) if len(entries) <= MOST_LISTED else None,
        )

    @property
    def n(self) -> int:
        """Tasks."""
        return sum(self.families.values())

    @property
    def absent(self) -> list[str]:
        """Families without a task, in alphabetical order."""
        return [family for family, count in self.families.items() if not count]

    @cached_property
    def counts(self) -> str:
        """The families that have tasks, such as `look 3 · simple 11`."""
        return " · ".join(f"{family} {count}" for family, count in self.families.items() if count)

    def summary(self) -> dict[str, Any]:
        """Returns all but the tasks, as plain values."""
        document = {name: value for name, value in vars(self).items() if name in self.__dataclass_fields__}
        del document["tasks"]
        return {"n": self.n, **document, "absent": self.absent}

    def write(self, path: Path) -> Path:
        """Writes it as JSON, one task per line; a reader meanwhile finds the file whole or not at all."""
        head = json.dumps({"format": FORMAT, "version": VERSION, **self.summary()}, indent=1)
        lines = (json.dumps(asdict(entry), ensure_ascii=False) for entry in self.tasks or ())
        body = "null" if self.tasks is None else "[\n  " + ",\n  ".join(lines) + "\n ]"
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{path.name}.{os.getpid()}")
        partial.write_text(f'{head[:-2]},\n "tasks": {body}\n}}\n', encoding="utf-8")
        partial.replace(path)
        return path

    @classmethod
    def read(cls, path: Path) -> Manifest:
        """Reads what `write` wrote.

        Raises:
            EvalError: there is no such file, it is no manifest, of another version, or was changed by hand.
        """
        if not path.is_file():
            raise EvalError(f"there is no manifest {path}: `run.py eval` writes one")
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            kind = document["format"], document["version"]
            tasks = document["tasks"]
            entries = None if tasks is None else tuple(TaskEntry(**entry) for entry in tasks)
            names = ("world", "split", "source", "subset_seed", "of", "families", "hash")
            manifest = cls(**{name: document[name] for name in names}, tasks=entries)
        except (KeyError, TypeError, ValueError) as error:
            raise EvalError(
                f"{path} is no manifest of tasks ({error!r}): `run.py eval` writes one"
            ) from error
        if kind != (FORMAT, VERSION):
            raise EvalError(
                f"{path} is a {kind[0]!r} of version {kind[1]}, expected a {FORMAT!r} of version {VERSION}"
            )
        if entries is not None and (_hash(entries) != manifest.hash or len(entries) != manifest.n):
            raise EvalError(
                f"{path} was changed after it was written: its tasks do not give its hash. Restore it, or "
                "choose the tasks again with eval.tasks and env.subset_seed"
            )
        return manifest

    def check_played(self, tasks: Mapping[str, Task], path: Path) -> None:
        """Checks that the world has all of these tasks, and that they are the same ones.

        Args:
            tasks: Those of the world's that are wanted, by id.
            path: What the message calls this manifest.

        Raises:
            EvalError: some are missing, or have another content; all are named.
        """
        missing = [entry.id for entry in self.tasks or () if entry.id not in tasks]
        found = {name: task_digest(task) for name, task in tasks.items()}
        other = [
            f"{entry.id} ({entry.digest} there, {found[entry.id]} here)"
            for entry in self.tasks or ()
            if entry.id in found and entry.digest != found[entry.id]
        ]
        parts = []
        if missing:
            parts.append(f"{len(missing)} of its {self.n} tasks are missing here:\n  " + "\n  ".join(missing))
        if other:
            parts.append(
                f"{len(other)} of its {self.n} tasks are of another generation, the same id with another "
                "content:\n  " + "\n  ".join(other)
            )
        if parts:
            raise EvalError(f"{path}: " + "\n".join(parts) + f"\nIt was made from {dict(self.source)}.")

    def check_same(self, recorded: Manifest, path: Path) -> None:
        """Checks that a run that goes on has the tasks it began with.

        Raises:
            EvalError: it has not; three tasks are named.
        """
        if self.hash == recorded.hash:
            return
        now = {entry.id: entry.digest for entry in self.tasks or ()}
        then = {entry.id: entry.digest for entry in recorded.tasks or ()}
        differences = [
            *(f"{name}: gone" for name in sorted(then.keys() - now.keys())),
            *(f"{name}: new" for name in sorted(now.keys() - then.keys())),
            *(
                f"{name}: {then[name]} then, {now[name]} now"
                for name in sorted(then.keys() & now.keys())
                if then[name] != now[name]
            ),
        ]
        named = "".join(f"\n  {line}" for line in differences[:3])
        more = f"\n  and {len(differences) - 3} more" if len(differences) > 3 else ""
        raise EvalError(
            f"the tasks of split {self.split!r} are not those that the run began with ({path}: {recorded.n} "
            f"tasks, hash {recorded.hash}; now {self.n}, hash {self.hash}):{named}{more}\n"
            "Bring the data back, or start a new run."
        )


def _hash(entries: Sequence[TaskEntry]) -> str:
    digest = hashlib.blake2b(digest_size=12)
    for line in sorted(f"{entry.id}\0{entry.family}\0{entry.digest}\n" for entry in entries):
        digest.update(line.encode())
    return digest.hexdigest()
