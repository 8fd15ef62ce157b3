"""Which tasks an update plays: a pure function of seed and position, so a resumed run plays the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from configs.seeds import derive

T = TypeVar("T")


def draw(tasks: Sequence[T], count: int, *, position: int, seed: int) -> list[T]:
    """Draws the `count` tasks from `position` on.

    A pass over the tasks is a seeded permutation, so each is drawn once per pass; passes follow each other
    without a gap, and an update may end one and begin the next.

    Args:
        tasks: Not empty, in an order that is the same every time.
        count: How many.
        position: Tasks drawn before these, over the whole run.
        seed: Of the run.

    Raises:
        ValueError: there are no tasks.
    """
    if not tasks:
        raise ValueError("there are no tasks to draw from: the train split is empty")
    drawn: list[T] = []
    while len(drawn) < count:
        number, start = divmod(position + len(drawn), len(tasks))
        order = np.random.default_rng(derive(seed, "tasks", number)).permutation(len(tasks))
        drawn += [tasks[i] for i in order[start : start + count - len(drawn)]]
    return drawn
