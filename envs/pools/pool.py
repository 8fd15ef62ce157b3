"""Many trajectories in flight behind one interface: in this process, in worker processes, on servers.

A pool is asked (`open`, `step`, `fork`) and answers later (`ready`), in whatever order replies arrive. What a
trajectory sees depends on its task, its seed and its actions alone, so every back end gives the same
trajectories. Losing workers or servers is the pool's business: it starts what was lost again, replays the
actions, and checks that the replies repeat. A `Failure` says that it has given up.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from envs.base import Env, EnvError, Outcome, Task, reply_digest
from envs.pools.replies import Failure, Reply, Trace, diverged, raised

__all__ = ["EnvPool", "Failure", "LocalPool", "Reply"]


class EnvPool(ABC):
    """Plays trajectories, each under a key of the caller's choice. Used by one thread, `wake` apart.

    This class sees to it that requests come in order; a back end implements `_open` (plays the trace's
    actions too, if there are some), `_step`, `_fork`, `_release` and `_ready`, and can rely on that order.
    """

    restarts: int = 0
    """Workers or servers whose trajectories had to be begun again so far."""

    def __init__(self) -> None:
        self._traces: dict[int, Trace] = {}

    def open(self, key: int, task: Task, seed: int) -> None:
        """Starts a trajectory.

        Raises:
            EnvError: the key is in use.
        """
        self._check_free(key)
        self._traces[key] = Trace(task, seed)
        self._open(key)

    def replay(
        self, key: int, task: Task, seed: int, actions: Sequence[str], checks: Sequence[str] = ()
    ) -> None:
        """Starts a trajectory and plays actions; there is one reply, where it then stands.

        Args:
            checks: The `reply_digest` of the first replies, the opening's first. If one does not repeat, the
                trajectory has failed ("diverged").

        Raises:
            EnvError: the key is in use.
        """
        self._check_free(key)
        self._traces[key] = Trace(task, seed, list(actions), len(actions), list(checks))
        self._open(key)

    def step(self, key: int, action: str) -> None:
        """Plays an action.

        Raises:
            EnvError: no such trajectory, it is over, or its last request has no reply yet.
        """
        trace = self._standing(key)
        if trace.over:
            raise EnvError(f"pool: the trajectory of key {key} is over. Release it, and open another.")
        if not isinstance(action, str):
            raise EnvError(f"pool: an action is a string, got {type(action).__name__} for key {key}.")
        trace.actions.append(action)
        trace.outstanding = True
        self._step(key, action)

    def fork(self, key: int, source: int) -> None:
        """Starts a trajectory as a copy of another where that stands now; the two then go their own ways.

        Raises:
            EnvError: the key is in use, there is no such source, it is over, or it waits for a reply.
        """
        self._check_free(key)
        trace = self._standing(source)
        if trace.over:
            raise EnvError(f"pool: the trajectory of key {source} is over: there is nothing to continue.")
        self._traces[key] = Trace(
            trace.task, trace.seed, list(trace.actions), len(trace.actions), list(trace.checks)
        )
        self._fork(key, source)

    def ready(self, timeout: float | None = None) -> list[Reply]:
        """Returns the replies that are there, and waits for one if there is none.

        Args:
            timeout: Seconds to wait at most; None: until there is one.

        Returns:
            None of released trajectories; an empty list when the time is up, when `wake` was called, or at
            once when no request is outstanding.

        Raises:
            EnvError: no back end is left that could play anything.
        """
        replies = self._ready(timeout)
        for reply in replies:
            trace = self._traces[reply.key]
            trace.outstanding = False
            trace.over = reply.failure is not None or (reply.outcome is not None and reply.outcome.done)
        return replies

    def release(self, key: int) -> None:
        """Lets go of a trajectory, whatever its state; nothing happens if there is none."""
        if key in self._traces:
            del self._traces[key]
            self._release(key)

    @property
    def outstanding(self) -> int:
        """Requests without a reply."""
        return sum(trace.outstanding for trace in self._traces.values())

    def checks(self, key: int) -> list[str]:
        """Returns the `reply_digest` of each reply up to the opening's, from the task's start on."""
        return list(self._traces[key].checks)

    def wake(self) -> None:  # noqa: B027 (a pool that never waits has nothing to wake)
        """Makes `ready` return; may be called from any thread."""

    @abstractmethod
    def close(self) -> None:
        """Lets go of everything; idempotent."""

    @abstractmethod
    def _open(self, key: int) -> None: ...

    @abstractmethod
    def _step(self, key: int, action: str) -> None: ...

    @abstractmethod
    def _fork(self, key: int, source: int) -> None: ...

    @abstractmethod
    def _release(self, key: int) -> None: ...

    @abstractmethod
    def _ready(self, timeout: float | None) -> list[Reply]: ...

    def _check_free(self, key: int) -> None:
        if key in self._traces:
            raise EnvError(f"pool: key {key} is in use. Release it first, or take another.")

    def _standing(self, key: int) -> Trace:
        trace = self._traces.get(key)
        if trace is None:
            raise EnvError(f"pool: there is no trajectory of key {key}. Open it first.")
        if trace.outstanding:
            raise EnvError(f"pool: the last request of key {key} has no reply yet. Call ready first.")
        return trace

    def __enter__(self) -> EnvPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class LocalPool(EnvPool):
    """Plays in this process; a request is done by the time it returns.

    Args:
        make_env: Makes an environment; environments of released trajectories are used again.
    """

    def __init__(self, make_env: Callable[[], Env]) -> None:
        super().__init__()
        self._make_env = make_env
        self._envs: dict[int, Env] = {}
        self._idle: list[Env] = []
        self._stands: dict[int, Outcome | None] = {}
        self._replies: dict[int, Reply] = {}

    def _open(self, key: int) -> None:
        self._do(key, self._play)

    def _step(self, key: int, action: str) -> None:
        def work(key: int) -> Reply:
            outcome = self._envs[key].step(action)
            self._stands[key] = outcome
            return Reply(key, self._traces[key].index, outcome.observation, outcome)

        self._do(key, work)

    def _fork(self, key: int, source: int) -> None:
        def work(key: int) -> Reply:
            env = self._take(key)
            observation = env.restore(self._envs[source].snapshot())
            self._stands[key] = self._stands[source]
            return Reply(key, 0, observation, self._stands[key], env.instruction)

        self._do(key, work)

    def _play(self, key: int) -> Reply:
        """Starts a task and plays the actions of its trace, holding the replies against its checks."""
        env, trace = self._take(key), self._traces[key]
        observation, outcome = env.reset(trace.task, trace.seed), None
        for number, action in enumerate([None, *trace.actions]):
            if action is not None:
                outcome = env.step(action)
                observation = outcome.observation
            digest = reply_digest(observation, outcome)
            if number == len(trace.checks):
                trace.checks.append(digest)
            elif trace.checks[number] != digest:
                return Reply(key, 0, None, failure=diverged(trace, number))
        self._stands[key] = outcome
        return Reply(key, 0, observation, outcome, env.instruction)

    def _do(self, key: int, work: Callable[[int], Reply]) -> None:
        """Keeps the reply; what the environment raises is one too, as it would be from another process."""
        try:
            self._replies[key] = work(key)
        except Exception as error:
            trace = self._traces[key]
            self._replies[key] = Reply(key, trace.index, None, failure=raised(error, trace))

    def _take(self, key: int) -> Env:
        self._envs[key] = self._idle.pop() if self._idle else self._make_env()
        return self._envs[key]

    def _ready(self, timeout: float | None) -> list[Reply]:
        replies = list(self._replies.values())
        self._replies.clear()
        return replies

    def _release(self, key: int) -> None:
        self._replies.pop(key, None)
        self._stands.pop(key, None)
        env = self._envs.pop(key, None)
        if env is not None:
            env.close()
            self._idle.append(env)

    def close(self) -> None:
        """See `EnvPool.close`."""
        for key in list(self._traces):
            self.release(key)
        self._idle.clear()


@contextmanager
def opened(environments: EnvPool | Callable[[], Env]) -> Iterator[EnvPool]:
    """Gives a pool: `environments`, which stays open, or one in this process that is closed afterwards."""
    if isinstance(environments, EnvPool):
        yield environments
    else:
        with LocalPool(environments) as pool:
            yield pool
