"""Whether an environment plays the same in another process: one with other hashes, later in the day."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass

from configs.schema import EnvConfig
from envs.base import Env, Task, reply_digest
from envs.checks import Checker, NonConforming, choose_admissible
from envs.wire.task_book import task_digest
from envs.worlds import open_world

HASH_SEEDS = ("1", "2")
"""Of strings, in the other processes; ours is random unless PYTHONHASHSEED is set."""

STEPS = 30
_REMEDY = (
    "Trajectories follow from task, seed and actions alone: sort what comes out of a set, and use no hash(), "
    "time, uuid, process id or unseeded generator"
)


@dataclass(frozen=True)
class Played:
    """What was played of a task.

    Attributes:
        task: Digest of the task.
        actions: As played.
        seen: Digest of the first observation and of every outcome.
    """

    task: str
    actions: tuple[str, ...]
    seen: tuple[str, ...]


def replay_elsewhere(
    env: EnvConfig, make_env: Callable[[], Env], tasks: Mapping[str, Sequence[Task]], n: int
) -> None:
    """Plays tasks here, and again in processes of their own.

    Args:
        env: Opens the world there.
        make_env: Makes environments here.
        tasks: The first `n` of each split.
        n: As there.

    Raises:
        NonConforming: There are other tasks there, or they play otherwise.
    """
    played = {split: [_walk(make_env, task) for task in found] for split, found in tasks.items()}
    words = (
        env.model_dump_json(),
        n,
        {split: [one.actions for one in those] for split, those in played.items()},
    )
    context = multiprocessing.get_context("spawn")
    kept = os.environ.get("PYTHONHASHSEED")
    with ExitStack() as stack:
        futures = []
        try:
            for seed in HASH_SEEDS:
                os.environ["PYTHONHASHSEED"] = seed
                pool = stack.enter_context(ProcessPoolExecutor(1, mp_context=context))
                futures.append(pool.submit(replay, *words))  # the process starts here
        finally:
            os.environ.pop("PYTHONHASHSEED")
            if kept is not None:
                os.environ["PYTHONHASHSEED"] = kept
        elsewhere = [future.result() for future in futures]
    for found in elsewhere:
        for split, those in played.items():
            _compare(split, tasks[split], those, found[split])


def replay(env: str, n: int, actions: Mapping[str, Sequence[Sequence[str]]]) -> dict[str, list[Played]]:
    """Opens the world and plays these actions in the first `n` tasks of each split."""
    world = open_world(EnvConfig.model_validate_json(env))
    return {
        split: [
            _replayed(world.make_env, task, those)
            for task, those in zip(world.tasks(split, n), found, strict=True)
        ]
        for split, found in actions.items()
    }


def _walk(make_env: Callable[[], Env], task: Task) -> Played:
    checker = Checker(make_env, 0, STEPS, 0, choose_admissible, None)
    return _replayed(make_env, task, checker.walk(make_env(), task)[0])


def _replayed(make_env: Callable[[], Env], task: Task, actions: Sequence[str]) -> Played:
    env = make_env()
    seen = [reply_digest(env.reset(task, 0), None)]
    for action in actions:
        outcome = env.step(action)
        seen.append(reply_digest(outcome.observation, outcome))
        if outcome.done:
            break
    env.close()
    return Played(task_digest(task), tuple(actions), tuple(seen))


def _compare(split: str, tasks: Sequence[Task], here: Sequence[Played], there: Sequence[Played]) -> None:
    for task, one, other in zip(tasks, here, there, strict=True):
        if one.task != other.task:
            raise NonConforming(
                f"the split {split!r} has other tasks in another process, such as for {task.id!r}. {_REMEDY}"
            )
        if one.seen != other.seen:
            pairs = enumerate(zip(one.seen, other.seen, strict=False))
            t = next((t for t, (a, b) in pairs if a != b), min(len(one.seen), len(other.seen)))
            when = "after reset" if t == 0 else f"after {t} actions"
            raise NonConforming(
                f"task {task.id!r} plays otherwise in another process, from what is seen {when} on. {_REMEDY}"
            )
