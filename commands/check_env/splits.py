"""Whether splits share tasks, so that what is held out is trained on."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from itertools import combinations

from envs.base import Env, Task
from envs.checks import NonConforming, choose_admissible

STEPS = 10
"""Steps that two tasks which look the same are played for, to see whether they are."""

_NAMES = ("id", "family", "split")


def check_disjoint(make_env: Callable[[], Env], tasks: Mapping[str, Sequence[Task]]) -> None:
    """Checks that no two splits share a task.

    Two tasks are the same if their ids are, or if they differ in nothing but id and split and play alike.

    Args:
        make_env: Plays what looks the same.
        tasks: Of each split.

    Raises:
        NonConforming: They share one.
    """
    for one, other in combinations(tasks, 2):
        ids = {task.id for task in tasks[one]} & {task.id for task in tasks[other]}
        if ids:
            raise NonConforming(
                f"the splits {one!r} and {other!r} share {len(ids)} of their tasks, such as {min(ids)!r}: "
                "what is held out must not be trained on. Let tasks(split) give every split its own"
            )
        known = {content(task): task for task in tasks[one] if content(task)}
        for task in tasks[other]:
            twin = known.get(content(task))
            if twin is not None and _played(make_env, twin) == _played(make_env, task):
                raise NonConforming(
                    f"the splits {one!r} and {other!r} share a task: {twin.id!r} and {task.id!r} differ in "
                    "nothing but their names and play alike; what is held out must not be trained on. Draw "
                    "tasks from derive(env.data_seed, split, number), or deal them out"
                )


def content(task: Task) -> str:
    """All of a task but its names; "" where there is nothing else, or no telling."""
    if not is_dataclass(task):
        return ""
    values = [(f.name, getattr(task, f.name)) for f in fields(task) if f.name not in _NAMES]
    return repr(values) if values else ""


def _played(make_env: Callable[[], Env], task: Task) -> list[object]:
    env, rng = make_env(), random.Random(0)
    seen: list[object] = [env.reset(task, 0), env.instruction]
    observation = seen[0]
    for _ in range(STEPS):
        seen.append(outcome := env.step(choose_admissible(observation, rng)))
        if outcome.done:
            break
        observation = outcome.observation
    env.close()
    return seen
