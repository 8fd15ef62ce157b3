"""The copies of environments a search plays in: one per state that it answers in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count

from agent.rollout.groups import RolloutCounts, RolloutError
from agent.rollout.watchdog import Watchdog
from agent.types import Group
from envs.pools.pool import EnvPool, Reply
from rl.search.tree import Node, Search


class Places:
    """The copies of one update's searches.

    Args:
        pool: Plays them.
        watchdog: Told of every answer.
        stop: Whether a failed environment ends the run; else it costs its answer, or its task's search.
    """

    def __init__(self, pool: EnvPool, watchdog: Watchdog, *, stop: bool) -> None:
        self._pool, self._watchdog, self._stop = pool, watchdog, stop
        self._keys = count()
        self._counts = RolloutCounts()

    @property
    def lost(self) -> dict[str, str]:
        """Task → why nothing came of it, so far."""
        return self._counts.lost

    def open(self, search: Search) -> int:
        """Begins a task; returns the key of where it stands."""
        key = next(self._keys)
        self._pool.open(key, search.task, search.env_seed)
        return key

    def go(self, search: Search, node: Node) -> int:
        """Plays a task to a state again, whose copy was given up when the search went elsewhere first."""
        key = next(self._keys)
        self._pool.replay(key, search.task, search.env_seed, [step.action for step in node.path])
        return key

    def copy(self, node: Node) -> int:
        """Copies a state, to answer in the copy."""
        key = next(self._keys)
        self._pool.fork(key, node.key)
        return key

    def step(self, key: int, action: str) -> None:
        """Plays an action."""
        self._pool.step(key, action)

    def replies(self, searches: Mapping[int, Search]) -> dict[int, Reply]:
        """Waits for the replies of these keys; those that failed are released, counted and left out.

        In the order of `searches`, so that nothing depends on who answers first.

        Raises:
            RolloutError: One has failed, and failures stop the run.
        """
        replies: dict[int, Reply] = {}
        while len(replies) < len(searches):
            replies |= {reply.key: reply for reply in self._pool.ready()}
            self._watchdog.pat()
        return {
            key: replies[key] for key, search in searches.items() if not self._failed(replies[key], search)
        }

    def release(self, key: int | None) -> None:
        """Gives a copy up; None: there is none."""
        if key is not None:
            self._pool.release(key)

    def close(self) -> None:
        """Gives all copies up."""
        for key in range(next(self._keys)):
            self._pool.release(key)

    def counted(self, groups: Sequence[Group]) -> RolloutCounts:
        """What failed. A task of which some answer failed, but others made a trajectory, is not lost."""
        for task_id in {trajectory.task_id for group in groups for trajectory in group} & set(self.lost):
            del self.lost[task_id]
        return self._counts

    def _failed(self, reply: Reply, search: Search) -> bool:
        if reply.failure is None:
            return False
        if self._stop:
            raise RolloutError(f"{reply.failure.message} ({reply.failure.reason}; group {search.group})")
        self._counts.failed[reply.failure.reason] += 1
        self.lost.setdefault(search.task.id, reply.failure.message)
        self.release(reply.key)
        return True
