"""Many trajectories in flight behind one interface: in this process, in worker processes, on servers.

A pool is asked (`open`, `step`, `fork`) and answers later (`ready`), in whatever order replies arrive. What a
trajectory sees depends on its task, its seed and its actions alone, so every back end gives the same
trajectories. Losing workers or servers is the pool's business: it starts what was lost again, replays the
actions, and checks that the replies repeat. A `Failure` says that it has given up.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from envs.base import Env, EnvError, Observation, Outcome, Task

Reason = Literal["error", "lost", "timeout", "refused"]


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a trajectory cannot go on.

    Attributes:
        reason: "error": the environment raised; playing it again would raise again. "lost": its worker or
            server died with it, more often than the pool tries again. "timeout": no reply in time, each
            time. "refused": its server does not play it (full, another version, other data).
        message: For people: what happened, where, and what to do.
    """

    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class Reply:
    """What became of one request.

    Attributes:
        key: The trajectory.
        index: 0 if it was opened or forked, i after its i-th step (of a fork: counted from there).
        observation: What the agent sees now; None after a failure.
        outcome: Of a step, else None.
        instruction: The task sentence, of an opening or a fork, else "".
        failure: If set, the trajectory is dead, and only `release` is legal.
    """

    key: int
    index: int
    observation: Observation | None
    outcome: Outcome | None = None
    instruction: str = ""
    failure: Failure | None = None


@dataclass(slots=True)
class Trace:
    """What a pool remembers of a trajectory; enough to play it again.

    Attributes:
        task: Its task.
        seed: Of its environment.
        actions: All actions since the task's start, those before a fork included.
        inherited: How many of them were played before the fork.
        outstanding: Whether a request has no reply yet.
        over: Whether it ended or failed.
        checks: Digest of every reply since the task's start, where the back end can lose a trajectory.
    """

    task: Task
    seed: int
    actions: list[str] = field(default_factory=list)
    inherited: int = 0
    outstanding: bool = True
    over: bool = False
    checks: list[bytes] = field(default_factory=list)

    @property
    def index(self) -> int:
        """Steps asked for since the trajectory was opened or forked."""
        return len(self.actions) - self.inherited


class EnvPool(ABC):
    """Plays trajectories, each under a key of the caller's choice. Used by one thread, `wake` apart.

    This class keeps the order of requests; a back end implements `_open`, `_step`, `_fork`, `_release` and
    `_ready`, and can rely on that order.
    """

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
            trace.task, trace.seed, list(trace.actions), len(trace.actions), checks=list(trace.checks)
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
        self._replies: dict[int, Reply] = {}

    def _open(self, key: int) -> None:
        def work() -> Reply:
            env = self._take(key)
            trace = self._traces[key]
            observation = env.reset(trace.task, trace.seed)
            return Reply(key, 0, observation, instruction=env.instruction)

        self._do(key, work)

    def _step(self, key: int, action: str) -> None:
        def work() -> Reply:
            outcome = self._envs[key].step(action)
            return Reply(key, self._traces[key].index, outcome.observation, outcome)

        self._do(key, work)

    def _fork(self, key: int, source: int) -> None:
        def work() -> Reply:
            env = self._take(key)
            observation = env.restore(self._envs[source].snapshot())
            return Reply(key, 0, observation, instruction=env.instruction)

        self._do(key, work)

    def _do(self, key: int, work: Callable[[], Reply]) -> None:
        """Keeps the reply; what the environment raises is one too, as it would be from another process."""
        try:
            self._replies[key] = work()
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
        env = self._envs.pop(key, None)
        if env is not None:
            env.close()
            self._idle.append(env)

    def close(self) -> None:
        """See `EnvPool.close`."""
        for key in list(self._traces):
            self.release(key)
        self._idle.clear()


def raised(error: Exception, trace: Trace) -> Failure:
    """Returns the failure of a trajectory whose environment raised."""
    where = f"at step {len(trace.actions)}" if trace.actions else "when it was opened"
    return Failure("error", f"task {trace.task.id!r}, {where}: {type(error).__name__}: {error}")
