"""What a world is: tasks and environments of one kind, and what it says of itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from configs.schema import EnvConfig
from configs.text import ConfigError, suggest
from envs.base import Env, Task
from envs.subset import Chosen, Roster

if TYPE_CHECKING:  # what only servers need takes a while to import
    from envs.wire.description import Description
    from envs.wire.task_book import TaskBook

GENERATED = "generated"


class World(ABC):
    """Tasks and environments of one kind; what they share is loaded once.

    Every world's subsets are taken here, so that there is one way to take them: `envs.subset`.
    """

    def __init__(self, env: EnvConfig) -> None:
        """Opens it as the section `env` of a configuration says."""
        self._env = env

    @abstractmethod
    def roster(self, split: str, n: int | None = None) -> Roster:
        """Returns all tasks of a split, in the same order every time.

        Args:
            split: Its name.
            n: How many are wanted. Only a world that makes tasks one by one, each drawn as the others, heeds
                it, and makes so many.

        Raises:
            ConfigError: There is no such split.
            EnvError: The data is missing or broken, or the split is empty.
        """

    @abstractmethod
    def source(self) -> Mapping[str, Any]:
        """Says in plain values where the tasks come from; for people who read a manifest."""

    @abstractmethod
    def make_env(self) -> Env:
        """Makes one environment instance."""

    @abstractmethod
    def task_book(self) -> TaskBook:
        """Returns the tasks that a server of this world can play."""

    @classmethod
    @abstractmethod
    def description(cls, env: EnvConfig) -> Description:
        """Says what is played, so that a client and a server can compare; opens nothing."""

    def families(self, roster: Roster) -> Sequence[str]:
        """Returns the families that tasks can have, so that absent ones can be named: here, a split's own."""
        return sorted(set(roster.names()[1]))

    def choose(self, split: str, n: int | None = None) -> Chosen:
        """Chooses `n` tasks of a split, in the proportions of its families; all of them if there are no more.

        Raises:
            ConfigError, EnvError: See `roster`.
        """
        return self.roster(split, n).choose(n, self._env.subset_seed)

    def tasks(self, split: str, n: int | None = None) -> Sequence[Task]:
        """Returns the tasks that `choose` chooses."""
        return self.choose(split, n).tasks


def check_split(split: str, known: Sequence[str], what: str) -> None:
    """Raises a ConfigError if there is no such split."""
    if split not in known:
        hint = suggest(split, known)
        raise ConfigError(f"{what}: there is no split {split!r}{hint} There are: {', '.join(known)}")
