"""Runs what is wanted, so many at a time, until nothing is left; what is finished is never run again.

All state is in the run folders: a killed sweep is continued by the same command.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from eval.experiments.folder import STOPPED_FILE, Run
from eval.experiments.launch import Handle, Job, Launcher
from eval.experiments.point_search import Bayes, Race

POLL = 0.5  # s
FAILURES = 3  # in a row without a success: the rest would most likely fail too


class Source(Protocol):
    """Says which run comes next."""

    total: int

    def take(self) -> Run | None:
        """Returns a run to see to, None if there is none (for now)."""

    def ended(self, run: Run) -> None:
        """Is told of every run that has ended, however."""


class Listed:
    """Runs known from the start."""

    def __init__(self, runs: Sequence[Run]) -> None:
        """Keeps their order."""
        self._left, self.total = list(runs), len(runs)

    def take(self) -> Run | None:
        """Returns the next one."""
        return self._left.pop(0) if self._left else None

    def ended(self, run: Run) -> None:
        """Changes nothing."""


class Proposed:
    """Runs that depend on the results of others."""

    def __init__(
        self, bayes: Bayes, make: Callable[[int], list[Run]], metric: str, *, count: int, seeds: int
    ) -> None:
        """Goes through the points proposed before, then on to `count`.

        Args:
            bayes: Proposes.
            make: Number of a point → its runs, one per seed, checked.
            metric: Fed back, as the mean over a point's seeds.
            count: Points in all.
            seeds: Of a point.
        """
        self._bayes, self._make, self._metric, self._count = bayes, make, metric, count
        self.total = count * seeds
        self._points: list[list[Run]] = [make(i) for i in range(len(bayes.points))]
        self._left = [run for runs in self._points for run in runs]
        self._ended: set[str] = set()

    def take(self) -> Run | None:
        """Returns the next run, asking for a new point if none is left of the old."""
        if not self._left and len(self._points) < self._count:
            self._bayes.propose({i: self._value(runs) for i, runs in enumerate(self._points)})
            self._points.append(self._make(len(self._points)))
            self._left = list(self._points[-1])
        return self._left.pop(0) if self._left else None

    def ended(self, run: Run) -> None:
        """Its value counts from now on."""
        self._ended.add(run.name)

    @property
    def runs(self) -> list[Run]:
        """All runs proposed so far."""
        return [run for runs in self._points for run in runs]

    def _value(self, runs: Sequence[Run]) -> float | None:
        """None while a seed runs; not a number if one left no value."""
        if any(run.name not in self._ended for run in runs):
            return None
        done = ("finished", "stopped")
        values = [run.value(self._metric) if run.state in done else None for run in runs]
        return math.nan if None in values else sum(values) / len(values)


class Watcher(Protocol):
    """Shows what happens."""

    def started(self, run: Run, how: str) -> None:
        """A run was started (`new`, `resumed`) or found under way (`elsewhere`)."""

    def running(self, run: Run) -> None:
        """Called now and then for a run under way."""

    def ended(self, run: Run, how: str) -> None:
        """A run is `finished` (now), `kept` (it was before), `stopped` early or `failed`."""


@dataclass
class Runner:
    """How runs are run.

    Attributes:
        launcher: Starts them.
        parallel: At a time.
        job: A run and whether it goes on → its job.
        watcher: Shows them.
        metric: Watched for early stopping.
        race: Makes the judge of the runs of one seed; None: every run is finished.
        poll: Seconds between looks.
    """

    launcher: Launcher
    parallel: int
    job: Callable[[Run, bool], Job]
    watcher: Watcher
    metric: str
    race: Callable[[], Race] | None = None
    poll: float = POLL
    _active: dict[int, tuple[Run, Handle]] = field(default_factory=dict)
    _races: dict[int, Race] = field(default_factory=dict)

    def run(self, source: Source) -> list[Run]:
        """Runs until the source has no more; on an interrupt the runs under way are stopped, resumably.

        Returns:
            The runs that failed.
        """
        failed: list[Run] = []
        row = 0  # failures since the last success
        try:
            while True:
                if row < FAILURES:
                    self._fill(source)
                if not self._active:
                    return failed
                time.sleep(self.poll)
                for slot, (run, handle) in list(self._active.items()):
                    how = self._look(run, handle)
                    if how is None:
                        continue
                    del self._active[slot]
                    self._end(source, run, how)
                    row = row + 1 if how == "failed" else 0
                    failed += [run] if how == "failed" else []
        finally:
            for _, handle in self._active.values():
                handle.stop()

    def _fill(self, source: Source) -> None:
        for slot in range(self.parallel):
            while slot not in self._active:
                run = source.take()
                if run is None:
                    return
                state = run.state
                if state in ("finished", "stopped"):
                    self._loses(run)  # it was a competitor of those that follow
                    self._end(source, run, "kept" if state == "finished" else "stopped")
                    continue
                job = self.job(run, state == "unfinished")
                handle = self.launcher.running(job.log)
                how = "elsewhere" if handle else ("resumed" if state == "unfinished" else "new")
                self._active[slot] = (run, handle or self.launcher.start(job, slot))
                self.watcher.started(run, how)

    def _look(self, run: Run, handle: Handle) -> str | None:
        """How a run ended, None if it has not."""
        code = handle.poll()
        if code is None:
            self.watcher.running(run)
            if not self._loses(run):
                return None
            handle.stop()
            if run.state != "finished":
                note = {"update": run.update, "metric": self.metric, "value": run.value(self.metric)}
                (run.folder / STOPPED_FILE).write_text(json.dumps(note) + "\n", encoding="utf-8")
        state = run.state
        return state if state in ("finished", "stopped") else "failed"

    def _loses(self, run: Run) -> bool:
        if self.race is None:
            return False
        if run.seed not in self._races:
            self._races[run.seed] = self.race()
        return self._races[run.seed].lost(run.name, [value for _, value in run.series(self.metric)])

    def _end(self, source: Source, run: Run, how: str) -> None:
        source.ended(run)
        self.watcher.ended(run, how)
