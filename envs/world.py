"""The contract of a world: tasks of one kind, and environments that play them.

A built-in world is a folder `envs/NAME/` with a class deriving from `World`, and one line in
`configs/worlds.py`. A class of one's own needs less (docs/environments.md): `envs.own_world` makes a
`World` of it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from configs.params import Checked
from configs.text import ConfigError, suggest
from configs.worlds import WORLDS
from envs.base import Env, Task
from envs.demonstration import Curriculum
from envs.subset import Chosen, Roster

if TYPE_CHECKING:  # what only servers need takes a while to import
    from envs.wire.description import Description
    from envs.wire.task_book import TaskBook

GENERATED = "generated"
"""`env.data` of worlds that make their own tasks."""


class Section(Protocol):
    """The section `env` of a configuration, as far as worlds read it (docs/options.md)."""

    name: str
    options: Mapping[str, Any]
    data: str
    data_seed: int
    difficulty: float
    skip_corrupt: bool
    max_steps: int
    anchor: str
    subset_seed: int


@dataclass(frozen=True)
class Options(Checked):
    """Base of a world's own options: a frozen dataclass, each field made by `configs.params.param`."""

    @classmethod
    def place(cls) -> str:
        """See `Checked.place`."""
        return "env.options"


class World(ABC):
    """Tasks and environments of one kind; what they share is loaded once.

    `choose` takes the subsets of every world, so that all do it alike (`envs.subset`).

    Attributes:
        Options: The class of its own options.
        noun: What its tasks are called in results.
        papers_tail: Characters from the end of a response without an action that the papers' public code
            plays instead (`prompt.parse=papers`).
        env: The section `env`.
        options: Its own options, checked.
        splits: The names of its splits.
    """

    Options: ClassVar[type[Options]] = Options
    noun: ClassVar[str] = "tasks"
    papers_tail: ClassVar[int] = 30

    splits: Sequence[str]

    def __init__(self, env: Section) -> None:
        """Opens it as the section `env` of a configuration says.

        Raises:
            ConfigError: An option it does not have, or a value that does not fit.
        """
        self.env = env
        self.options = self.read_options(env)

    @classmethod
    def read_options(cls, env: Section) -> Any:
        """Returns `env.options` as an instance of `Options`.

        Raises:
            ConfigError: See `__init__`.
        """
        try:
            return cls.Options.of(env.options)
        except ValueError as error:
            raise ConfigError(f"{error}; env.name is {env.name}") from error

    @abstractmethod
    def roster(self, split: str, n: int | None = None) -> Roster:
        """Returns all tasks of a split, in the same order every time: `Roster.of(tasks)`.

        Args:
            split: Its name.
            n: How many are wanted. Only a world that draws its tasks independently uses it, and makes that
                many.

        Raises:
            ConfigError: There is no such split.
            EnvError: The data is missing or broken, or the split is empty.
        """

    @abstractmethod
    def make_env(self) -> Env:
        """Makes one environment instance."""

    def source(self) -> Mapping[str, Any]:
        """Says in plain values where the tasks come from; written into manifests."""
        env = self.env
        told = {"data": env.data, "data_seed": env.data_seed, "difficulty": env.difficulty}
        return told | asdict(self.options)

    def task_book(self) -> TaskBook:
        """Returns the tasks that a server of this world can play: here, all tasks of all splits."""
        from envs.wire.task_book import ListedTasks

        return ListedTasks(task for split in self.splits for task in self.tasks(split))

    @classmethod
    def description(cls, env: Section) -> Description:
        """Describes what is played, so that client and server can compare it; opens nothing."""
        from envs.wire.description import describe, module_digest

        told = {key: getattr(env, key) for key in ("max_steps", "anchor", "data", "data_seed", "difficulty")}
        told |= asdict(cls.read_options(env))
        if env.name in WORLDS:
            return describe(env.name, told)
        # A file may stand elsewhere on the server: its class and its content say whether they are the same.
        return describe(cls.__name__, told, code=module_digest(cls))

    @classmethod
    def lessons(cls) -> Curriculum | None:
        """Returns the demonstrations for a warm start (`run.py warmstart`); None if there are none."""
        return None

    def families(self, roster: Roster) -> Sequence[str]:
        """Returns all families of tasks, so that tables can list absent ones: here, those in the split."""
        return sorted(set(roster.names()[1]))

    def choose(self, split: str, n: int | None = None) -> Chosen:
        """Chooses `n` tasks of a split, in the proportions of its families; all of them if there are no more.

        Raises:
            ConfigError, EnvError: See `roster`.
        """
        return self.roster(split, n).choose(n, self.env.subset_seed)

    def tasks(self, split: str, n: int | None = None) -> Sequence[Task]:
        """Returns the tasks that `choose` chooses."""
        return self.choose(split, n).tasks

    def check_split(self, split: str) -> None:
        """Raises a ConfigError if there is no such split."""
        if split not in self.splits:
            hint = suggest(split, self.splits)
            raise ConfigError(
                f"{self.env.name}: there is no split {split!r}{hint} There are: {', '.join(self.splits)}"
            )
