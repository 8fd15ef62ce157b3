"""`run.py check-env`: compares an environment with its contract before anything is trained on it."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.progress import Progress

from commands.build.terminal import open_console
from commands.check_env.processes import replay_elsewhere
from commands.check_env.splits import check_disjoint
from configs.load import load
from configs.schema import EnvConfig
from configs.text import ConfigError
from configs.worlds import WORLDS
from envs.base import EnvError, Task
from envs.checks import NonConforming, check_env
from envs.own_errors import in_words
from envs.own_world import find_class
from envs.wire.task_book import task_digest
from envs.world import World
from envs.worlds import open_world


def run(experiment: str, overrides: Sequence[str], n: int, splits: Sequence[str]) -> None:
    """Checks the environment of an experiment on `n` tasks per split, in proportion to its families.

    Args:
        splits: Names of splits; if empty, the experiment's two: of training and of evaluation.

    Raises:
        ConfigError: See `configs.load.load` and `open_world`.
        EnvError: There are no tasks, or the environment cannot play them.
        NonConforming: A promise is broken, or the environment crashes.
    """
    config = load(experiment, overrides).config
    env = config.env
    with _told(env, "making the world"):
        world, again = open_world(env), open_world(env)
    splits = tuple(dict.fromkeys(splits or (env.split, config.eval.split)))
    tasks: dict[str, list[Task]] = {}
    for split in splits:
        with _told(env, f"tasks({split!r})"):
            tasks[split] = check_tasks(world, again, split, n)
    with _told(env, "comparing splits"):
        check_disjoint(world.make_env, _everything(world, tasks))
    screen = open_console()
    with Progress(console=screen, transient=True, disable=not screen.is_terminal) as progress:
        for split in splits:
            for task in progress.track(tasks[split], description=f"{env.label}, {split}"):
                with _told(env, f"task {task.id!r}"):
                    check_env(world.make_env, [task], limit=env.max_steps)
    with _told(env, "playing in another process"):
        replay_elsewhere(env, world.make_env, tasks, n)
    count = sum(map(len, tasks.values()))
    print(f"{env.label} keeps the contract on {count} task{'' if count == 1 else 's'} of {', '.join(splits)}")


def check_tasks(world: World, again: World, split: str, n: int) -> list[Task]:
    """Returns `n` tasks of a split, after checking what holds for every list of tasks.

    Args:
        world: The one that is checked.
        again: A second one of the same configuration.

    Raises:
        NonConforming: The tasks are others the next time, belong to another split, or cannot travel to worker
            processes.
    """
    tasks = list(world.tasks(split, n))
    name = f"the split {split!r}"
    if not _alike(tasks, again.tasks(split, n)):
        raise NonConforming(f"{name} has other tasks every time: derive what is drawn from env.data_seed")
    for task in tasks:
        if task.split != split:
            raise NonConforming(f"{name} has a task {task.id!r} whose own split is {task.split!r}")
        if not _alike([pickle.loads(pickle.dumps(task))], [task]):
            raise NonConforming(f"task {task.id!r} is another one after pickling: make it a frozen dataclass")
    return tasks


def _alike(tasks: Sequence[Task], others: Sequence[Task]) -> bool:
    """Whether two lists hold the same tasks, as environment servers compare them."""
    return [task_digest(task) for task in tasks] == [task_digest(task) for task in others]


def _everything(world: World, tasks: Mapping[str, Sequence[Task]]) -> Mapping[str, Sequence[Task]]:
    """The tasks to compare: those played; of somebody's own world all, since its lists are cheap."""
    return tasks if world.env.name in WORLDS else {split: world.tasks(split) for split in tasks}


@contextmanager
def _told(env: EnvConfig, what: str) -> Iterator[None]:
    """Turns a crash of a world of somebody's own into one line; a crash of ours stays what it is."""
    try:
        yield
    except (ConfigError, EnvError, NonConforming):
        raise
    except Exception as error:
        file = _file_of(env)
        if file is None:
            raise
        raise NonConforming(f"{env.label}, {what}: {in_words(error, file)}") from error


def _file_of(env: EnvConfig) -> Path | None:
    """Where somebody's own world is written."""
    return None if env.name in WORLDS else Path(inspect.getfile(find_class(env.name)))
