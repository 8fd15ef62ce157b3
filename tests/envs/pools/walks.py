"""What the tests of pools and servers play: seeded walks, and what a pool's replies to them amount to."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from envs.base import Observation, Task, fill
from envs.pools.pool import EnvPool, Reply

WORDS = ("red", "large", "cotton", "shoe")


def choose(observation: Observation, rng: random.Random) -> str:
    """Draws an admissible command; one in eight is nonsense, which costs a step."""
    if rng.random() < 0.125 or not observation.admissible:
        return "no such command"
    return fill(rng.choice(observation.admissible), rng.choice(WORDS))


@dataclass
class Walk:
    """One trajectory: its replies in order, and the generator of its actions."""

    task: Task
    seed: int
    rng: random.Random
    replies: list[Reply]


def play(
    pool: EnvPool,
    tasks: Sequence[Task],
    *,
    members: int = 2,
    steps: int = 12,
    seed: int = 0,
    parallel: int = 1000,
    disturb: Callable[[int], None] = lambda replies: None,
    patience: float = 60.0,
) -> list[list[Reply]]:
    """Plays `members` walks of every task, `parallel` at once.

    Args:
        disturb: Called after each reply with the number of replies so far.
        patience: Seconds for the whole.

    Returns:
        The replies of each walk; equal for every pool that plays as it should.
    """
    waiting = [
        (len(tasks) * k + i, task) for k in range(members) for i, task in enumerate(tasks)
    ]  # members of a group are spread over time, so that seats are refilled
    waiting.reverse()
    walks: dict[int, Walk] = {}
    live: set[int] = set()
    count, until = 0, time.monotonic() + patience
    while waiting or live:
        while waiting and len(live) < parallel:
            key, task = waiting.pop()
            walks[key] = Walk(task, seed + key, random.Random(f"{seed}/{key}"), [])
            pool.open(key, task, seed + key)
            live.add(key)
        for reply in pool.ready(1.0):
            walk = walks[reply.key]
            assert reply.index == len(walk.replies), "replies come once each, and in order"
            walk.replies.append(reply)
            done = reply.failure or (reply.outcome and reply.outcome.done) or reply.index >= steps
            if done:
                pool.release(reply.key)
                live.discard(reply.key)
            else:
                pool.step(reply.key, choose(reply.observation, walk.rng))
            count += 1
            disturb(count)
        assert time.monotonic() < until, "the pool hangs"
    return [walks[key].replies for key in sorted(walks)]
