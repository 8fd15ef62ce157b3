"""The tasks of a server: known beforehand, or uploaded once; they travel by id and digest."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from envs.base import EnvError, Task, task_digest
from envs.wire.messages import GameContent


def content(task: Task) -> GameContent | None:
    """Returns what a server needs that does not have the task; None where it has to have it.

    A task that travels whole has a method `texts`, which returns the other fields of `GameContent`.
    """
    texts = getattr(task, "texts", None)
    if texts is None:
        return None
    return GameContent(id=task.id, family=task.family, split=task.split, **texts())


class TaskBook(Protocol):
    """The tasks that a server can play."""

    def find(self, name: str, digest: str) -> Task | None:
        """Returns a task, or None if it has to be uploaded.

        Raises:
            EnvError: it cannot be had: there is no such task, or it has another digest.
        """

    def add(self, games: Iterable[GameContent]) -> int:
        """Takes tasks; returns how many.

        Raises:
            EnvError: this environment's tasks are not uploaded.
        """


class ListedTasks:
    """Tasks that are known beforehand, such as the goals of a shop."""

    def __init__(self, tasks: Iterable[Task]) -> None:
        self._tasks = {task.id: task for task in tasks}

    def find(self, name: str, digest: str) -> Task:
        """See `TaskBook.find`."""
        task = self._tasks.get(name)
        if task is None:
            raise EnvError(f"there is no task {name!r} among the server's {len(self._tasks)}.")
        if task_digest(task) != digest:
            raise EnvError(f"task {name!r} is another one here: the server has other data.")
        return task

    def add(self, games: Iterable[GameContent]) -> int:
        """See `TaskBook.add`."""
        raise EnvError("this environment has its tasks; none are uploaded.")
