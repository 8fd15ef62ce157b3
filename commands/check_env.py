"""`run.py check-env`: an environment, held to its contract before anything is trained on it."""

from __future__ import annotations

import pickle
from collections.abc import Sequence

from rich.progress import Progress

from commands.build import console
from commands.tasks import open_world
from commands.world import World
from configs.load import load
from envs.base import Task
from envs.checks import NonConforming, check_env
from envs.server.tasks import task_digest


def run(experiment: str, overrides: Sequence[str], n: int, splits: Sequence[str]) -> None:
    """Checks the environment of an experiment on `n` tasks of some splits, of each family its share.

    Args:
        splits: The experiment's two, that of training and that of evaluation, if empty.

    Raises:
        ConfigError: See `configs.load.load` and `open_world`.
        EnvError: There are no tasks, or the environment cannot play them.
        NonConforming: A promise is broken.
    """
    config = load(experiment, overrides).config
    world, again = open_world(config.env), open_world(config.env)
    splits = tuple(dict.fromkeys(splits or (config.env.split, config.eval.split)))
    count = 0
    screen = console()
    with Progress(console=screen, transient=True, disable=not screen.is_terminal) as progress:
        for split in splits:
            tasks = check_tasks(world, again, split, n)
            for task in progress.track(tasks, description=f"{config.env.label}, {split}"):
                check_env(world.make_env, [task], limit=config.env.max_steps)
            count += len(tasks)
    tasks = "1 task" if count == 1 else f"{count} tasks"
    print(f"{config.env.label} keeps the contract on {tasks} of {', '.join(splits)}")


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
