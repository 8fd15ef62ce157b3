"""A scripted policy that answers one token per round, and pools that are slow, out of order, or break."""

import itertools
import time

import numpy as np

from agent.types import Generation
from envs.pools.pool import Failure, LocalPool, Reply
from tests.toy import ScriptedPolicy


class StreamingPolicy(ScriptedPolicy):
    """`ScriptedPolicy` with `start` and `advance`, and rows that can be cut (`Request.keep`).

    Attributes:
        rounds: Responses in flight in each round.
        requests: All that was asked.
    """

    def __init__(self, tokenizer, script, window=4096):
        super().__init__(tokenizer, script, window)
        self.rounds, self.requests = [], []
        self._flight = {}

    def start(self, requests, sampling):
        for request in requests:
            assert request.key not in self._flight
            self._flight[request.key] = [0, self._answer(request)]

    def advance(self):
        self.rounds.append(len(self._flight))
        ended = []
        for key, flying in list(self._flight.items()):
            flying[0] += 1
            if flying[0] == len(flying[1].ids):
                ended.append((key, self._flight.pop(key)[1]))
        return ended

    def release(self, key):
        self._flight.pop(key, None)
        super().release(key)

    def _answer(self, request):
        self.requests.append(request)
        if request.keep is not None:
            del self._rows[request.key][request.keep :]
        generation = super()._answer(request)
        return Generation(generation.ids, self._logps(request, generation), generation.finish)

    def _logps(self, request, generation):
        return np.random.default_rng(request.seed).random(len(generation.ids)).tolist()


class ShuffledPool(LocalPool):
    """Replies one at a time, in a random order."""

    def __init__(self, make_env, seed=0):
        super().__init__(make_env)
        self._rng = np.random.default_rng(seed)

    def _ready(self, timeout):
        if not self._replies:
            return []
        keys = list(self._replies)
        return [self._replies.pop(keys[self._rng.integers(len(keys))])]


class LatePool(LocalPool):
    """Replies of `late` keys come `rounds` calls of `ready` late (None: never); it waits by `sleep`."""

    def __init__(self, make_env, late, rounds, sleep=time.sleep):
        super().__init__(make_env)
        self._sleep = sleep
        self._late, self._rounds, self._calls, self._due = late, rounds, itertools.count(), {}

    def _ready(self, timeout):
        now = next(self._calls)
        for key in self._replies:
            wait = self._rounds if key in self._late else 0
            self._due.setdefault(key, np.inf if wait is None else now + wait)
        ready = [key for key in self._replies if self._due[key] <= now]
        if not ready and timeout:
            self._sleep(timeout)
        for key in ready:
            del self._due[key]
        return [self._replies.pop(key) for key in ready]

    def _release(self, key):
        self._due.pop(key, None)
        super()._release(key)


class BrokenPool(LocalPool):
    """Fails the requests that `breaks(number of the opening, steps taken)` names; openings count from 0."""

    def __init__(self, make_env, breaks, reason="lost"):
        super().__init__(make_env)
        self._breaks, self._reason = breaks, reason
        self._openings, self._number = itertools.count(), {}

    def _open(self, key):
        self._number[key] = next(self._openings)
        super()._open(key)

    def _ready(self, timeout):
        replies = super()._ready(timeout)
        return [
            Reply(
                r.key, r.index, None, failure=Failure(self._reason, f"worker of {self._number[r.key]} died")
            )
            if self._breaks(self._number[r.key], r.index)
            else r
            for r in replies
        ]
