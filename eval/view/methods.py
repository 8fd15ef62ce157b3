"""Credit methods over the updates of a run, on request: one update at once, all of them in the background."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from credit.pipeline import CreditResult
from eval.replay.disagreement import sign_distance, spread
from eval.replay.recorded import Method, read_run
from eval.result import EvalError
from eval.view.files import read_columns
from eval.view.index import TrajectoryIndex

MakeMethods = Callable[[Path, Sequence[str]], tuple[int, Sequence[Method]]]
"""(run folder, names) → (seed, methods); raises what the user did wrong."""
_KEPT = 12
"""Updates whose results stay in memory."""


@dataclass(frozen=True, eq=False)
class Scored:
    """What some methods say about one update.

    Attributes:
        methods: In the order asked for.
        results: One each; rows in the order of the file.
        stateful: Methods that carry a state from one update to the next, and here saw none of the earlier.
    """

    methods: Sequence[Method]
    results: Sequence[CreditResult]
    stateful: Sequence[str]


class Scorer:
    """Runs methods on recorded updates and keeps the latest results."""

    def __init__(self, make: MakeMethods) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[object, ...], Scored] = OrderedDict()

    def score(self, run: Path, update: int, file: Path, names: Sequence[str]) -> Scored:
        """Returns what the methods say about an update; about a second where it is not known yet."""
        key = (file, file.stat().st_mtime_ns, tuple(names))
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        scored = self._score(run, update, file, names)
        with self._lock:
            self._kept[key] = scored
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return scored

    def _score(self, run: Path, update: int, file: Path, names: Sequence[str]) -> Scored:
        seed, methods = self._make(run, names)
        tokens = any(method.pipeline.token_columns for method in methods)
        (recorded,) = read_run({update: file}, tokens=tokens)
        results = [
            method.pipeline.run(recorded.table, method.services, seed=seed, step=update) for method in methods
        ]
        stateful = [m.name for m, result in zip(methods, results, strict=True) if result.state]
        return Scored(methods, results, stateful)


class Disputes:
    """Works out, for all updates of a run, how far methods disagree about each trajectory."""

    def __init__(self, scorer: Scorer) -> None:
        self._scorer = scorer
        self._lock = threading.Lock()
        self._running: set[tuple[Path, tuple[str, ...]]] = set()
        self._failed: dict[tuple[Path, tuple[str, ...]], str] = {}

    def ensure(self, run: Path, index: TrajectoryIndex, names: tuple[str, ...]) -> tuple[int, int]:
        """Sees to it that the index knows all disagreements, in a thread of its own.

        Returns:
            (updates done, updates there are).

        Raises:
            EvalError: the thread came upon an error.
        """
        todo = index.files().keys() - index.disputed_updates(names)
        job = (run, names)
        with self._lock:
            if job in self._failed:
                raise EvalError(self._failed.pop(job))
            if todo and job not in self._running:
                self._running.add(job)
                threading.Thread(target=self._work, args=(run, index, names), daemon=True).start()
        return len(index.files()) - len(todo), len(index.files())

    def _work(self, run: Path, index: TrajectoryIndex, names: tuple[str, ...]) -> None:
        job = (run, names)
        try:
            known = index.disputed_updates(names)
            for update, file in reversed(index.files().items()):  # the newest are looked at first
                if update not in known:
                    index.add_disputes(names, update, self._disputes(run, update, file, names))
        except Exception as error:  # shown on the page by the next `ensure`: a thread has nobody to raise to
            with self._lock:
                self._failed[job] = f"comparing {', '.join(names)} failed: {error!r}"
        finally:
            with self._lock:
                self._running.discard(job)

    def _disputes(
        self, run: Path, update: int, file: Path, names: tuple[str, ...]
    ) -> list[tuple[int, float, float, int]]:
        columns = read_columns(file, ["trajectory", "advantage"])
        scored = self._scorer.score(run, update, file, names)
        advantages = np.stack([columns["advantage"], *(result.advantage for result in scored.results)])
        return disputes(columns["trajectory"], advantages)


def disputes(trajectory: np.ndarray, advantages: np.ndarray) -> list[tuple[int, float, float, int]]:
    """Returns (trajectory, mean sign distance, mean spread, steps of opposite signs) of each trajectory.

    Args:
        trajectory: int [N], of each step.
        advantages: float [M, N], what each method says of it.
    """
    numbers, where = np.unique(trajectory, return_inverse=True)
    length = np.bincount(where)
    signs = np.bincount(where, sign_distance(advantages)) / length
    spreads = np.bincount(where, spread(advantages)) / length
    opposite = np.bincount(where, (advantages.min(axis=0) < 0) & (advantages.max(axis=0) > 0))
    rows = zip(numbers.tolist(), signs.round(12).tolist(), spreads.round(12).tolist(), opposite, strict=True)
    return [(number, sign, wide, int(count)) for number, sign, wide, count in rows]
