"""Tasks travel by id and digest; a server has them listed, or is sent the content once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from threading import Lock
from typing import Protocol

from envs.alfworld.game import Game
from envs.base import EnvError, Task, task_digest
from envs.wire.messages import GameContent

GAMES_KEPT = 8192
"""Uploaded games a server keeps, the last used ones; 4 kB each, more where they bring a domain."""


def content(task: Task) -> GameContent | None:
    """Returns what a server needs that does not have the task; None where it has to have it."""
    if not isinstance(task, Game):
        return None
    return GameContent(
        id=task.id,
        family=task.family,
        split=task.split,
        goal=task.goal,
        pddl_problem=task.pddl_problem,
        pddl_domain=task.pddl_domain,
        grammar=task.grammar,
    )


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


class UploadedGames:
    """ALFWorld games, kept from uploads. Safe to use from several threads."""

    def __init__(self, kept: int = GAMES_KEPT) -> None:
        self._kept = kept
        self._games: OrderedDict[str, Game] = OrderedDict()
        self._texts: dict[str, str] = {}
        self._lock = Lock()

    def find(self, name: str, digest: str) -> Game | None:
        """See `TaskBook.find`."""
        with self._lock:
            game = self._games.get(digest)
            if game is not None:
                self._games.move_to_end(digest)
            return game

    def add(self, games: Iterable[GameContent]) -> int:
        """See `TaskBook.add`; the texts are compiled when they are first played."""
        count = 0
        with self._lock:
            for count, body in enumerate(games, start=1):  # noqa: B007 (count is the result)
                # One copy of a domain that thousands of games bring.
                domain, grammar = (
                    None if text is None else self._texts.setdefault(text, text)
                    for text in (body.pddl_domain, body.grammar)
                )
                game = Game(body.id, body.family, body.split, body.goal, body.pddl_problem, domain, grammar)
                self._games[task_digest(game)] = game
                if len(self._games) > self._kept:
                    self._games.popitem(last=False)
            if len(self._texts) > 64:
                self._texts.clear()
        return count
