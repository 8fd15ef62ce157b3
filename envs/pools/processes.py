"""Plays trajectories in worker processes; one that dies or hangs costs no trajectory."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait

from configs.worlds import WORLDS
from envs.base import Env, EnvError
from envs.pools.placement import Placement
from envs.pools.replaying import RecoveringPool, ReplayableTrajectory
from envs.pools.replies import Failure
from envs.pools.worker import Answer, Request, work

# Not fork: a copy of a process that has threads (torch's, a server's) may hang at its first lock. A fork of a
# helper that has none and has imported what is needed takes milliseconds; a new interpreter takes longer.
_context = multiprocessing.get_context("forkserver")
_PRELOADED = ("envs.pools.worker", *(place.partition(":")[0] for place in WORLDS.values()))

TRIES = 3
"""Times that a request may take its worker with it, and that a worker may die before it has begun."""


START_SECONDS = 120.0
"""Time that a worker has to import and open what it needs."""


@dataclass(eq=False)
class _Worker:
    """One process, and what it is asked.

    Attributes:
        number: From 0.
        outbox: Not sent yet.
        sent: In flight since `since`; None if it is idle. At most one message is in flight, so neither end
            ever waits for the other to empty a full pipe.
        began: Whether it has said that it can make environments.
        alone: Send requests one by one, since among them may be the one that killed its predecessor.
    """

    number: int
    process: multiprocessing.process.BaseProcess | None = None
    connection: Connection | None = None
    trajectories: dict[int, ReplayableTrajectory] = field(default_factory=dict)
    outbox: list[Request] = field(default_factory=list)
    sent: list[Request] | None = None
    since: float = 0.0
    began: bool = False
    alone: bool = False
    stillborn: int = 0


class ProcessPool(RecoveringPool):
    """Plays in worker processes, one trajectory in one of them; members of a group share one.

    A worker that dies or hangs is started again and its trajectories are played again to where they stood.
    Requests are sent when `ready` is called, all that have gathered at once.

    Args:
        make_env: Makes an environment; pickled once for each worker.
        workers: Processes; None: one per core this process may use.
        timeout: Seconds after which a worker that has not answered is taken for hung.

    Attributes:
        restarts: Workers started again so far.

    Raises:
        EnvError: `make_env` fails in a worker, or an argument is out of range.
    """

    def __init__(
        self, make_env: Callable[[], Env], workers: int | None = None, *, timeout: float = 60.0
    ) -> None:
        super().__init__()
        number = cores() if workers is None else workers
        if number < 1 or not timeout > 0:
            raise EnvError(
                f"ProcessPool: workers must be at least 1 and timeout positive, got {workers}, {timeout}."
            )
        self._make_env, self._timeout = make_env, timeout
        # The helper starts with the first pool; a maker of a later pool is imported by each worker.
        maker = getattr(make_env, "__module__", None)
        _context.set_forkserver_preload([*_PRELOADED, *([maker] if maker else [])])
        self._placement: Placement[int] = Placement()
        self._wakeup, self._waker = _context.Pipe(duplex=False)
        self._workers = [_Worker(i) for i in range(number)]
        try:
            for worker in self._workers:
                self._start(worker)
            while not all(worker.began for worker in self._workers):
                self._turn(None)
        except BaseException:
            self.close()
            raise

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers."""
        return [worker.process.pid for worker in self._workers if worker.process]

    def _open(self, key: int) -> None:
        trajectory = self._new_trajectory(key)
        place = self._placement.take(trajectory.trace.task.id, range(len(self._workers)))
        self._ask(trajectory, self._workers[place], self._opening(trajectory))

    def _step(self, key: int, action: str) -> None:
        trajectory = self._of_key[key]
        if trajectory.doom:
            return self._fail(trajectory, trajectory.doom)
        self._ask(
            trajectory,
            trajectory.place,
            Request("step", trajectory.serial, len(trajectory.trace.actions), action),
        )

    def _fork(self, key: int, source: int) -> None:
        parent, trajectory = self._of_key[source], self._new_trajectory(key)
        self._placement.join(trajectory.trace.task.id, parent.place.number)
        request = Request("fork", trajectory.serial, len(trajectory.trace.actions), source=parent.serial)
        self._ask(trajectory, parent.place, request)
        if parent.doom:
            self._fail(trajectory, parent.doom)

    def _release(self, key: int) -> None:
        trajectory = self._forget(key)
        worker = trajectory.place
        del worker.trajectories[trajectory.serial]
        worker.outbox.append(Request("release", trajectory.serial))
        self._placement.leave(trajectory.trace.task.id, worker.number)

    def _ask(self, trajectory: ReplayableTrajectory, worker: _Worker, request: Request) -> None:
        trajectory.place = worker
        worker.trajectories[trajectory.serial] = trajectory
        worker.outbox.append(request)

    @staticmethod
    def _opening(trajectory: ReplayableTrajectory) -> Request:
        trace = trajectory.trace
        actions, checks = tuple(trace.actions), tuple(trace.checks)
        return Request(
            "open",
            trajectory.serial,
            len(actions),
            task=trace.task,
            seed=trace.seed,
            actions=actions,
            checks=checks,
        )

    def wake(self) -> None:
        """See `EnvPool.wake`."""
        self._waker.send_bytes(b"!")

    def _turn(self, timeout: float | None) -> None:
        """Sends what has gathered and takes what arrives until `timeout`, or until a worker hangs."""
        for worker in self._workers:
            if worker.sent is None and worker.outbox:
                self._send(worker)
        now = time.monotonic()
        busy = {worker.connection: worker for worker in self._workers if worker.sent is not None}
        hung = min((self._hung_at(worker) for worker in busy.values()), default=now + 1.0)
        left = max(0.0, hung - now)
        arrived = wait([*busy, self._wakeup], left if timeout is None else max(0.0, min(left, timeout)))
        for connection in arrived:
            if connection is self._wakeup:
                self._wakeup.recv_bytes()
                self._woken = True
            else:
                self._receive(busy[connection])
        now = time.monotonic()
        for connection, worker in busy.items():
            if connection not in arrived and now >= self._hung_at(worker):
                self._replace(worker, "timeout", f"did not answer within {now - worker.since:.0f} s")

    def _hung_at(self, worker: _Worker) -> float:
        return worker.since + (self._timeout if worker.began else START_SECONDS)

    def _send(self, worker: _Worker) -> None:
        number = 1 if worker.alone else len(worker.outbox)
        worker.sent, worker.outbox = worker.outbox[:number], worker.outbox[number:]
        worker.alone = worker.alone and bool(worker.outbox)
        worker.since = time.monotonic()
        try:
            worker.connection.send(worker.sent)
        except ConnectionError:
            self._replace(worker, "lost", "died")

    def _receive(self, worker: _Worker) -> None:
        try:
            message = worker.connection.recv()
        except (EOFError, ConnectionError):
            return self._replace(worker, "lost", "died")
        worker.sent = None
        if worker.began:
            for answer in message:
                self._take(worker, answer)
        elif message:
            raise EnvError(f"an environment worker cannot start: {message}")
        else:
            worker.began, worker.stillborn = True, 0

    def _take(self, worker: _Worker, answer: Answer) -> None:
        serial, position, observation, outcome, instruction, checks, failure = answer
        if failure is None:
            self._arrived(serial, position, observation, outcome, instruction, checks)
        elif serial in worker.trajectories:
            self._fail(worker.trajectories[serial], failure)

    def _start(self, worker: _Worker) -> None:
        worker.connection, theirs = _context.Pipe()
        name = f"env-worker-{worker.number}"
        worker.process = _context.Process(target=work, args=(theirs, self._make_env), name=name, daemon=True)
        worker.process.start()
        theirs.close()
        worker.began, worker.sent, worker.since = False, [], time.monotonic()

    def _replace(self, worker: _Worker, reason: str, what: str) -> None:
        """Starts a worker again, and asks it for all that its predecessor had."""
        self._stop(worker)
        worker.stillborn += not worker.began
        if worker.stillborn >= TRIES:
            raise EnvError(
                f"an environment worker {what} {TRIES} times in a row before it began: "
                "see its messages above, and whether the machine has memory left."
            )
        self.restarts += 1
        lost = {request.serial for request in worker.sent or ()}
        worker.outbox = []
        for trajectory in worker.trajectories.values():
            if trajectory.trace.over or trajectory.doom:
                continue
            trajectory.tries += trajectory.serial in lost
            if trajectory.tries >= TRIES:
                self._fail(trajectory, _given_up(trajectory, reason, what))
            else:
                worker.outbox.append(self._opening(trajectory))
        worker.alone = True
        self._start(worker)

    def _stop(self, worker: _Worker) -> None:
        if worker.process is not None:
            worker.connection.close()
            worker.process.kill()
            worker.process.join()
            worker.process.close()
            worker.process = None

    def close(self) -> None:
        """See `EnvPool.close`; ends the workers."""
        for key in list(self._traces):
            self.release(key)
        for worker in self._workers:
            self._stop(worker)
        self._wakeup.close()
        self._waker.close()


def cores() -> int:
    """Returns the number of cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _given_up(trajectory: ReplayableTrajectory, reason: str, what: str) -> Failure:
    trace = trajectory.trace
    last = f"action {trace.actions[-1]!r}" if trace.actions else "its opening"
    return Failure(
        "timeout" if reason == "timeout" else "lost",
        f"task {trace.task.id!r}, seed {trace.seed}: {TRIES} workers in a row {what} over it (step "
        f"{len(trace.actions)}, {last}).",
    )
