"""Sessions of a server: one thread puts batches of requests to an `EnvPool` and hands back its replies."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from itertools import count
from queue import Empty, Queue
from threading import Event, Thread

from envs.base import EnvError
from envs.pools.pool import EnvPool
from envs.pools.replies import Reply
from envs.server.session import PendingBatch, Session
from envs.server.session_metrics import SessionMetrics
from envs.wire.messages import Answer, Batch, Fork, Opening, Played, Stepping, Trouble
from envs.wire.task_book import TaskBook

TICK = 1.0
"""Seconds between looks for idle sessions."""


class Sessions:
    """Plays batches, in the order they come, those of several clients at once.

    Args:
        pool: Played by the sessions' own thread only, from `start` on; closed with it.
        book: The tasks there are.
        limit: Sessions open at once.
        idle_seconds: Time after which a session that nobody asks for is closed.
        metrics: Counted into.
        clock: Seconds from any start; monotonic.
    """

    def __init__(
        self,
        pool: EnvPool,
        book: TaskBook,
        *,
        limit: int,
        idle_seconds: float,
        metrics: SessionMetrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pool, self._book, self._limit, self._idle = pool, book, limit, idle_seconds
        self._metrics, self._clock = metrics, clock
        self._sessions: dict[str, Session] = {}
        self._of_key: dict[int, Session] = {}
        self._keys = count()
        self._batches: Queue[PendingBatch | None] = Queue()
        self._stopped = Event()
        self._swept = clock()
        self._thread = Thread(target=self._run, name="sessions", daemon=True)
        self.draining = False

    @property
    def alive(self) -> bool:
        """Whether batches are played."""
        return self._thread.is_alive() and not self._stopped.is_set()

    def __len__(self) -> int:
        return len(self._sessions)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def play(self, batch: Batch) -> Future[Answer]:
        """Puts a batch in line; may be called from any thread."""
        batch = PendingBatch(batch)
        self._batches.put(batch)
        self._pool.wake()
        return batch.future

    def close(self) -> None:
        """Closes all sessions and the pool."""
        self._stopped.set()
        self._batches.put(None)
        self._pool.wake()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._stopped.is_set():
                self._admit(wait=not self._pool.outstanding)
                for reply in self._pool.ready(TICK):
                    self._deliver(reply)
                self._sweep()
        finally:
            self._stopped.set()
            self._abandon()
            self._pool.close()

    def _abandon(self) -> None:
        """Tells whoever waits that there will be no answer."""
        waiting = [batch for session in self._sessions.values() for batch, _ in session.waiting]
        while not self._batches.empty():
            waiting.append(self._batches.get())
        for batch in waiting:
            if batch is not None and not batch.future.done():
                batch.future.set_exception(EnvError("this server is stopping."))

    def _admit(self, wait: bool) -> None:
        """Takes all batches in line; waits for one if nothing is being played."""
        try:
            batch = self._batches.get(timeout=TICK) if wait else self._batches.get_nowait()
            while True:
                if batch is not None:
                    self._take(batch)
                batch = self._batches.get_nowait()
        except Empty:
            return

    def _take(self, batch: PendingBatch) -> None:
        for slot, request in enumerate(batch.requests):
            trouble = self._ask(batch, slot, request)
            if trouble is not None:
                self._metrics.troubles.labels(trouble.reason).inc()
                batch.put(slot, Played(session=request.session, position=request.position, trouble=trouble))
        for name in batch.batch.close:
            self._end(name, "closed")
        batch.finish()

    def _ask(self, batch: PendingBatch, slot: int, request: Opening | Fork | Stepping) -> Trouble | None:
        """Puts one request to the pool; returns why not."""
        session = self._sessions.get(request.session)
        if session is not None and session.request == request:
            self._repeat(session, batch, slot)
            return None
        if isinstance(request, Stepping):
            return self._step(session, batch, slot, request)
        if session is not None:
            return Trouble(reason="moved", message=f"there is a session {request.session!r} already.")
        if len(self._sessions) >= self._limit:
            return Trouble(
                reason="full", message=f"{self._limit} sessions are open, as many as this server plays."
            )
        return (
            self._open(batch, slot, request)
            if isinstance(request, Opening)
            else self._fork(batch, slot, request)
        )

    def _repeat(self, session: Session, batch: PendingBatch, slot: int) -> None:
        self._metrics.repeated.inc()
        session.used = self._clock()
        if session.last is None:
            session.waiting.append((batch, slot))
        else:
            batch.put(slot, session.last)

    def _step(
        self, session: Session | None, batch: PendingBatch, slot: int, request: Stepping
    ) -> Trouble | None:
        if session is None:
            return _unknown(request.session)
        if session.last is None or request.position != session.position + 1:
            return Trouble(
                reason="moved",
                message=f"session {request.session!r} is at position {session.position}: it cannot go to "
                f"{request.position} by {request.action[:80]!r}.",
            )
        try:
            self._pool.step(session.key, request.action)
        except EnvError as error:  # the trajectory is over
            return Trouble(reason="moved", message=str(error))
        self._begin(session, batch, slot, request)
        return None

    def _open(self, batch: PendingBatch, slot: int, request: Opening) -> Trouble | None:
        if self.draining:
            return Trouble(reason="draining", message="this server is about to stop.")
        try:
            task = self._book.find(request.task.id, request.task.digest)
        except EnvError as error:
            return Trouble(reason="refused", message=str(error))
        if task is None:
            return Trouble(reason="unknown_task", message=f"task {request.task.id!r} has to be uploaded.")
        session = self._new(request)
        self._pool.replay(session.key, task, request.seed, request.actions, request.checks)
        self._begin(session, batch, slot, request)
        return None

    def _fork(self, batch: PendingBatch, slot: int, request: Fork) -> Trouble | None:
        source = self._sessions.get(request.source)
        if source is None:
            return _unknown(request.source)
        if source.last is None or source.position != request.position:
            return Trouble(
                reason="moved",
                message=f"session {request.source!r} is at position {source.position}, "
                f"not at {request.position}.",
            )
        session = self._new(request)
        try:
            self._pool.fork(session.key, source.key)
        except EnvError as error:  # the source is over
            del self._sessions[session.name], self._of_key[session.key]
            return Trouble(reason="moved", message=str(error))
        self._begin(session, batch, slot, request)
        return None

    def _new(self, request: Opening | Fork) -> Session:
        session = Session(next(self._keys), request.session, request.position, request, self._clock())
        self._sessions[session.name] = self._of_key[session.key] = session
        self._metrics.begun.labels("fork" if isinstance(request, Fork) else "open").inc()
        return session

    def _begin(
        self, session: Session, batch: PendingBatch, slot: int, request: Opening | Fork | Stepping
    ) -> None:
        session.request, session.position, session.last = request, request.position, None
        session.waiting.append((batch, slot))
        session.used = self._clock()

    def _deliver(self, reply: Reply) -> None:
        session = self._of_key[reply.key]
        opened = isinstance(session.request, Opening)
        if reply.failure is None:
            played = Played.model_construct(
                session=session.name,
                position=session.position,
                observation=None if reply.outcome else reply.observation,
                outcome=reply.outcome,
                instruction=reply.instruction,
                checks=tuple(self._pool.checks(reply.key)) if opened else (),
                trouble=None,
            )
        else:
            trouble = Trouble(reason=reply.failure.reason, message=reply.failure.message)
            played = Played(session=session.name, position=session.position, trouble=trouble)
            self._metrics.troubles.labels(trouble.reason).inc()
        self._metrics.steps.inc(isinstance(session.request, Stepping))
        session.last, session.used = played, self._clock()
        waiting, session.waiting = session.waiting, []
        if reply.failure is not None:
            self._end(session.name, "failed")
        for batch, slot in waiting:
            batch.put(slot, played)

    def _end(self, name: str, why: str) -> None:
        session = self._sessions.pop(name, None)
        if session is None:
            return
        del self._of_key[session.key]
        self._pool.release(session.key)
        self._metrics.ended.labels(why).inc()
        for batch, slot in session.waiting:  # closed while it was played
            batch.put(slot, Played(session=name, position=session.position, trouble=_unknown(name)))

    def _sweep(self) -> None:
        """Once a tick, closes sessions that have been idle for too long."""
        now = self._clock()
        if now - self._swept < TICK:
            return
        self._swept = now
        oldest = now - self._idle
        for name in [s.name for s in self._sessions.values() if s.used < oldest and s.last is not None]:
            self._end(name, "expired")
        self._metrics.sessions.set(len(self._sessions))
        self._metrics.workers_restarted.set(self._pool.restarts)


def _unknown(name: str) -> Trouble:
    return Trouble(
        reason="unknown_session",
        message=f"there is no session {name!r}: it was closed, has expired, or was another server's.",
    )
