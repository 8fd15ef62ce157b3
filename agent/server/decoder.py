"""The thread that owns a server's policy: it decodes for all clients together, and takes new weights."""

from __future__ import annotations

import sys
import time
import traceback
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from itertools import count
from queue import Empty, SimpleQueue
from threading import Event, Thread
from typing import Any

from agent.policy import Policy, PolicyError, Sampling
from agent.server.clients import Client, Order, Waiting
from agent.server.decoder_metrics import DecoderMetrics
from agent.server.weight_state import NotReady, Stopping, Weights
from agent.types import Request
from agent.wire.messages import Ask, Collect, Collected, Fault, Release, Start, Started

TICK = 0.5
"""Seconds between looks at the clock while nothing is decoded."""

Work = Callable[[Future[Any]], None]


class Unknown(Exception):
    """The server knows nothing of this client."""


class Decoder:
    """Runs a policy for many clients.

    Its methods may be called from any thread and return at once. What touches the policy is done by the
    engine's own thread, between two rounds; its outcome is a future's.

    Args:
        policy: Used by the engine's thread only, from `start` on.
        vocabulary: Token ids are below it.
        weights: Says whether and from which weights it samples, and has them loaded.
        conversations: Most held at once.
        idle_seconds: Time after which a client that nobody has heard of is forgotten.
        metrics: Counted into.
        clock: Seconds from any start; monotonic.

    Attributes:
        draining: Whether nothing new is begun.
    """

    def __init__(
        self,
        policy: Policy,
        vocabulary: int,
        weights: Weights,
        *,
        conversations: int,
        idle_seconds: float,
        metrics: DecoderMetrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.draining = False
        self._policy, self._vocabulary, self._weights = policy, vocabulary, weights
        self._most, self._idle_seconds = conversations, idle_seconds
        self._metrics, self._clock = metrics, clock
        self._clients: dict[str, Client] = {}
        self._keys = count()
        self._held = 0  # conversations
        self._line: deque[Order] = deque()  # taken, not started
        self._flying: dict[int, Order] = {}  # started, by the policy's key
        self._sampling = Sampling()  # of those
        self._tasks: SimpleQueue[tuple[Future[Any], Work] | None] = SimpleQueue()
        self._stopped = Event()
        self._swept = clock()
        self._thread = Thread(target=self._run, name="policy", daemon=True)

    @property
    def alive(self) -> bool:
        """Whether requests are worked on."""
        return self._thread.is_alive() and not self._stopped.is_set()

    @property
    def ready(self) -> bool:
        """Whether responses can be sampled."""
        return self.alive and not self.draining and self._weights.state.label is not None

    def __len__(self) -> int:
        """Responses that are due or not collected."""
        return sum(client.open for client in list(self._clients.values()))

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def close(self) -> None:
        """Ends the thread; whoever waits is told."""
        self._stopped.set()
        self._weights.abort("this server is stopping")
        self._tasks.put(None)
        self._thread.join()

    def wake(self) -> None:
        """Has the thread look at what there is to do."""
        self._tasks.put(None)

    def take(self, message: Start) -> Future[Started]:
        """Takes requests; one that came before is not taken again.

        Raises (its future):
            NotReady: The weights are of another transfer, or there are none, or the server ends.
            Stopping: The server is full.
        """
        return self._later(partial(self._take, message))

    def collect(self, message: Collect) -> Future[Collected]:
        """Hands out responses that have ended, when there are `enough`, or time is up.

        Raises (its future):
            Unknown: There is no such client, or another record of it.
        """
        return self._later(partial(self._collect, message))

    def release(self, message: Release) -> Future[None]:
        """Forgets conversations."""
        return self._later(partial(self._release, message))

    def _later(self, work: Work) -> Future[Any]:
        future: Future[Any] = Future()
        self._tasks.put((future, work))
        if self._stopped.is_set():
            self._abandon()
        return future

    def _run(self) -> None:
        try:
            while not self._stopped.is_set():
                loading = self._weights.due
                self._work(wait=not (self._line or self._flying or loading))
                self._admit()
                if self._flying:
                    self._round()
                elif loading and not self._line:
                    self._weights.load(self._policy)
                self._look_around()
        except Exception:
            traceback.print_exc(file=sys.stderr)
        finally:
            self._stopped.set()
            self._abandon()

    def _abandon(self) -> None:
        """Tells whoever waits that there will be no answer."""
        futures = [client.waiting.future for client in list(self._clients.values()) if client.waiting]
        try:
            while True:
                futures += [task[0] for task in [self._tasks.get_nowait()] if task is not None]
        except Empty:
            pass
        for future in futures:
            if not future.done():
                future.set_exception(Stopping("this server is stopping"))

    def _work(self, wait: bool) -> None:
        """Does what was asked for; waits a moment for something if there is nothing else to do."""
        try:
            task = self._tasks.get(timeout=TICK) if wait else self._tasks.get_nowait()
            while True:
                if task is not None:
                    future, work = task
                    try:
                        work(future)
                    except (NotReady, Stopping, Unknown) as error:
                        future.set_exception(error)
                task = self._tasks.get_nowait()
        except Empty:
            return

    def _take(self, message: Start, future: Future[Started]) -> None:
        self._weights.check(message.label)
        if self.draining:
            raise NotReady("this server takes nothing new: it is stopping")
        client = self._clients.get(message.client) or Client(self._clock())
        new = [ask for ask in message.ask if ask.number > client.seen]
        begun = {ask.conversation for ask in new} - client.keys.keys()
        if self._held + len(begun) > self._most:
            raise Stopping(f"{self._held} conversations are held, this server has room for {self._most}")
        self._clients[message.client] = client
        client.used = self._clock()
        self._metrics.requests.inc(len(new))
        self._metrics.repeated.inc(len(message.ask) - len(new))
        for conversation in message.release:
            self._forget(client, conversation)
        for ask in new:
            client.seen = max(client.seen, ask.number)
            self._line_up(client, ask, Sampling(message.temperature, message.top))
        future.set_result(Started(record=client.record))

    def _line_up(self, client: Client, ask: Ask, sampling: Sampling) -> None:
        key = client.keys.get(ask.conversation)
        if ask.conversation in client.due:
            return self._fault(client, ask.number, "refused", "its conversation has a response in flight")
        if ask.ids and max(ask.ids) >= self._vocabulary:
            text = f"token {max(ask.ids)} is none: the vocabulary has {self._vocabulary}"
            return self._fault(client, ask.number, "refused", text)
        if key is None:
            if not ask.fresh:
                return self._fault(client, ask.number, "unknown", "this conversation is not known here")
            key = client.keys[ask.conversation] = next(self._keys)
            self._held += 1
        client.due[ask.conversation] = ask.number
        request = Request(key, ask.ids, ask.fresh, ask.seed, ask.max_new_tokens, ask.keep)
        self._line.append(Order(client, ask.conversation, ask.number, request, sampling))

    def _fault(self, client: Client, number: int, reason: Any, message: str) -> None:
        self._metrics.faults.labels(reason).inc()
        client.deliver(number, self._policy.version, Fault(reason=reason, message=message))

    def _collect(self, message: Collect, future: Future[Collected]) -> None:
        client = self._clients.get(message.client)
        if client is None or client.record != message.record:
            raise Unknown("this client is not known here: it was silent for too long, or the server is new")
        client.used = self._clock()
        client.acknowledge(message.ack)
        client.ask(Waiting(future, message.enough, client.used + message.wait))

    def _release(self, message: Release, future: Future[None]) -> None:
        client = self._clients.get(message.client)
        if client is not None:
            client.used = self._clock()
            for conversation in message.conversations:
                self._forget(client, conversation)
        future.set_result(None)

    def _forget(self, client: Client, conversation: int) -> None:
        key = client.keys.pop(conversation, None)
        if key is None:
            return
        self._held -= 1
        client.due.pop(conversation, None)
        self._flying.pop(key, None)
        for order in self._line:
            order.dropped |= order.request.key == key
        self._policy.release(key)

    def _admit(self) -> None:
        """Starts those in line, up to the first that is to be sampled otherwise than what is in flight."""
        while self._line:
            order = self._line[0]
            if self._flying and order.sampling != self._sampling and not order.dropped:
                return
            self._line.popleft()
            if order.dropped:
                continue
            try:
                # One by one: a request that is refused harms no other.
                self._policy.start([order.request], order.sampling)
            except PolicyError as error:
                del order.client.due[order.conversation]
                self._fault(order.client, order.number, "refused", str(error))
            else:
                self._sampling, self._flying[order.request.key] = order.sampling, order

    def _round(self) -> None:
        began = time.perf_counter()
        for key, generation in self._policy.advance():
            order = self._flying.pop(key)
            del order.client.due[order.conversation]
            order.client.deliver(order.number, self._policy.version, generation)
            self._metrics.tokens.inc(len(generation.ids))
        self._metrics.round.observe(time.perf_counter() - began)

    def _look_around(self) -> None:
        """Answers who has waited enough; forgets who has been silent for too long."""
        now = self._clock()
        for client in self._clients.values():
            client.answer(now)
        self._metrics.flying.set(len(self._flying) + len(self._line))
        self._metrics.conversations.set(self._held)
        if now - self._swept < TICK:
            return
        self._swept = now
        for name, client in list(self._clients.items()):
            if client.waiting is None and now - client.used > self._idle_seconds:
                for conversation in list(client.keys):
                    self._forget(client, conversation)
                del self._clients[name]
                self._metrics.expired.inc()
