"""Pools in this process and in worker processes: the same trajectories, whatever dies on the way."""

from __future__ import annotations

import os
import random
import signal
import time
from dataclasses import dataclass, replace
from functools import partial

import pytest

from envs.alfworld import AlfworldEnv
from envs.base import Env, EnvError, Observation, Outcome
from envs.pools.placement import SPARE, Placement
from envs.pools.pool import LocalPool
from envs.pools.processes import ProcessPool
from tests.envs.pools.walks import play
from tests.envs.small_games import WINNING_WALK, kitchen, porch

GAMES = [kitchen(), porch()]


@dataclass(frozen=True)
class Count:
    """A task of `Tricky`."""

    id: str
    family: str = "count"
    split: str = "train"


class Tricky(Env):
    """Counts steps, and does as it is told: "die", "hang", "raise"."""

    def __init__(self):
        self.count = 0

    def observe(self):
        return Observation(f"at {self.count}", str(self.count), ("up", "die"))

    def reset(self, task, seed=0):
        return self.restore((seed, seed))

    def step(self, action):
        if action == "die":
            os._exit(3)
        if action == "hang":
            time.sleep(1000)
        if action == "raise":
            raise ValueError("told to")
        self.count += time.monotonic_ns() if action == "jump" else 1
        return Outcome(self.observe(), 0.0, False, False, False, 0.0)

    def snapshot(self):
        return self.seed, self.count

    def restore(self, snapshot):
        self.seed, self.count = snapshot
        self.instruction = f"count from {self.seed}"
        return self.observe()


def only(pool):
    """The one reply of a pool."""
    (reply,) = pool.ready(30.0)
    return reply


def no_env():
    raise EnvError("no data at 'nowhere'")


@pytest.fixture(scope="module")
def workers():
    with ProcessPool(partial(AlfworldEnv, max_steps=15), 2) as pool:
        yield pool


@pytest.fixture(scope="module")
def tricky():
    with ProcessPool(Tricky, 1) as pool:
        yield pool


@pytest.fixture(scope="module")
def undisturbed():
    return play(LocalPool(partial(AlfworldEnv, max_steps=15)), GAMES, members=4)


def test_a_walk_that_wins_is_the_environments_own():
    env, pool = AlfworldEnv(), LocalPool(AlfworldEnv)
    pool.open(7, kitchen(), 0)
    first = only(pool)
    assert (first.key, first.index, first.outcome) == (7, 0, None)
    assert (first.observation, first.instruction) == (env.reset(kitchen()), "put a hot mug in cabinet")
    for index, action in enumerate(WINNING_WALK, start=1):
        pool.step(7, action)
        reply, outcome = only(pool), env.step(action)
        assert (reply.index, reply.outcome, reply.observation) == (index, outcome, outcome.observation)
    assert reply.outcome.success
    with pytest.raises(EnvError, match="over"):
        pool.step(7, "look")


def test_worker_processes_play_the_same(workers, undisturbed):
    assert play(workers, GAMES, members=4) == undisturbed


def test_seats_do_not_matter(workers, undisturbed):
    assert play(workers, GAMES, members=4, parallel=3) == undisturbed


@pytest.mark.parametrize("seed", [0, 1])
def test_a_worker_killed_at_random_moments_changes_nothing(workers, undisturbed, seed):
    rng, before = random.Random(seed), workers.restarts
    moments = set(rng.sample(range(1, 90), 2))

    def kill(count):
        if count in moments:
            os.kill(rng.choice(workers.pids), signal.SIGKILL)
            moments.discard(count)

    assert play(workers, GAMES, members=4, disturb=kill) == undisturbed
    assert workers.restarts > before and not moments


@pytest.mark.parametrize("make", [lambda: LocalPool(Tricky), None], ids=["local", "process"])
def test_a_fork_goes_its_own_way_and_so_does_its_source(make, tricky):
    pool = make() if make else tricky
    pool.open(1, Count("a"), 10)
    only(pool)
    pool.step(1, "up")
    only(pool)
    pool.fork(2, 1)
    pool.step(1, "up")
    replies = {reply.key: reply for reply in pool.ready(30.0)}
    while len(replies) < 2:
        replies |= {reply.key: reply for reply in pool.ready(30.0)}
    fork, source = replies[2], replies[1]
    assert (fork.index, fork.observation.text, fork.instruction) == (0, "at 11", "count from 10")
    assert (source.index, source.observation.text) == (2, "at 12")
    pool.step(2, "up")
    reply = only(pool)
    assert (reply.key, reply.index, reply.observation.text) == (2, 1, "at 12")
    pool.release(1)
    pool.step(2, "up")
    assert only(pool).observation.text == "at 13"
    pool.release(2)


def test_a_fork_survives_its_worker(tricky):
    tricky.open(1, Count("a"), 0)
    only(tricky)
    tricky.step(1, "up")
    only(tricky)
    tricky.fork(2, 1)
    only(tricky)
    os.kill(tricky.pids[0], signal.SIGKILL)
    tricky.step(2, "up")
    reply = only(tricky)
    assert (reply.index, reply.observation.text, reply.failure) == (1, "at 2", None)
    tricky.release(1), tricky.release(2)


@pytest.mark.parametrize("make", [lambda: LocalPool(Tricky), None], ids=["local", "process"])
def test_a_replay_stands_where_the_actions_lead(make, tricky):
    pool = make() if make else tricky
    pool.replay(1, Count("a"), 5, ["up", "up"])
    reply = only(pool)
    assert (reply.index, reply.observation.text, reply.instruction) == (0, "at 7", "count from 5")
    checks = pool.checks(1)
    assert len(checks) == 3 and len(set(checks)) == 3
    pool.replay(2, Count("a"), 5, ["up", "up"], checks)
    assert only(pool).failure is None
    pool.replay(3, Count("a"), 6, ["up", "up"], checks)
    assert only(pool).failure.reason == "diverged"
    for key in (1, 2, 3):
        pool.release(key)


@pytest.mark.parametrize("make", [lambda: LocalPool(Tricky), None], ids=["local", "process"])
def test_what_an_environment_raises_is_a_failure_of_that_trajectory_alone(make, tricky):
    pool = make() if make else tricky
    for key in (1, 2):
        pool.open(key, Count("a"), 0)
    for _ in range(2):
        pool.ready(30.0) if pool.outstanding else None
    pool.step(1, "raise")
    failure = only(pool).failure
    assert failure.reason == "error" and "ValueError: told to" in failure.message and "'a'" in failure.message
    pool.step(2, "up")
    assert only(pool).observation.text == "at 1"
    pool.release(1), pool.release(2)


def test_a_request_that_kills_every_worker_fails_alone(tricky):
    for key in range(4):
        tricky.open(key, Count("a"), key)
    got = 0
    while got < 4:
        got += len(tricky.ready(30.0))
    for key in range(4):
        tricky.step(key, "die" if key == 2 else "up")
    replies = {}
    while len(replies) < 4:
        replies |= {reply.key: reply for reply in tricky.ready(30.0)}
    assert replies[2].failure.reason == "lost" and "'die'" in replies[2].failure.message
    assert [replies[key].observation.text for key in (0, 1, 3)] == ["at 1", "at 2", "at 4"]
    for key in range(4):
        tricky.release(key)


def test_a_worker_that_hangs_is_replaced():
    with ProcessPool(Tricky, 1, timeout=1.0) as pool:
        for key in (1, 2):
            pool.open(key, Count("a"), 0)
        got = 0
        while got < 2:
            got += len(pool.ready(30.0))
        pool.step(1, "hang")
        pool.step(2, "up")
        replies = {}
        while len(replies) < 2:
            replies |= {reply.key: reply for reply in pool.ready(60.0)}
        assert replies[1].failure.reason == "timeout"
        assert replies[2].observation.text == "at 1"


def test_an_environment_that_does_not_repeat_is_found_out(tricky):
    tricky.open(1, Count("a"), 0)
    only(tricky)
    tricky.step(1, "jump")
    only(tricky)
    os.kill(tricky.pids[0], signal.SIGKILL)
    tricky.step(1, "up")
    assert only(tricky).failure.reason == "diverged"
    tricky.release(1)


def test_a_worker_that_cannot_start_says_why():
    with pytest.raises(EnvError, match="no data at 'nowhere'"):
        ProcessPool(no_env, 1)


@pytest.mark.parametrize("make", [lambda: LocalPool(Tricky), None], ids=["local", "process"])
def test_requests_out_of_order_are_refused(make, tricky):
    pool = make() if make else tricky
    with pytest.raises(EnvError, match="no trajectory of key 1"):
        pool.step(1, "up")
    pool.open(1, Count("a"), 0)
    for wrong in (lambda: pool.step(1, "up"), lambda: pool.fork(2, 1)):
        with pytest.raises(EnvError, match="no reply yet"):
            wrong()
    with pytest.raises(EnvError, match="in use"):
        pool.open(1, Count("a"), 0)
    only(pool)
    with pytest.raises(EnvError, match="a string"):
        pool.step(1, 3)
    assert pool.ready(None) == [], "nothing is outstanding, so there is nothing to wait for"
    pool.step(1, "up")
    pool.release(1)
    pool.release(1)
    assert pool.ready(0.2) == [], "a released trajectory has no replies"
    pool.open(1, Count("a"), 3)
    assert only(pool).observation.text == "at 3", "the key is free again"
    pool.release(1)


def test_groups_stay_together_until_a_place_is_fuller_than_that():
    router = Placement()
    assert [router.take(group, "xyz") for group in "aaaabbbbcccc"] == [*"xxxxyyyyzzzz"]
    many = [router.take("a", "xyz") for _ in range(3 * SPARE)]
    loads = [router.load(place) for place in "xyz"]
    assert many[0] == "x" and max(loads) - min(loads) <= SPARE + 1
    for place in many:
        router.leave("a", place)
    assert [router.load(place) for place in "xyz"] == [4, 4, 4]
    assert router.take("d", "y") == "y", "only places that are offered"


def test_bad_arguments():
    with pytest.raises(EnvError, match="workers must be at least 1"):
        ProcessPool(Tricky, 0)
    pool = LocalPool(Tricky)
    pool.open(1, replace(Count("a"), id="b"), 0)
    pool.close()
    pool.close()
    assert pool.ready(None) == []
