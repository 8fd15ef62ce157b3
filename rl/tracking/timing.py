"""Wall time of the parts of an update."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rl.tracking.progress import ProgressPanel


class Clock:
    """`with clock("rollout"): …` times a part and tells the progress display about it."""

    def __init__(self, update: int, progress: ProgressPanel) -> None:
        """Starts the update's time."""
        self._update, self._progress = update, progress
        self._began = time.perf_counter()
        self._seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, part: str) -> Iterator[None]:
        """Times one part; parts of the same name add up."""
        self._progress.stage(self._update, part)
        began = time.perf_counter()
        yield
        self._seconds[part] = self._seconds.get(part, 0.0) + time.perf_counter() - began

    def metrics(self, tokens_sampled: float) -> dict[str, float]:
        """Returns `time/…` of the parts so far and of the update, and the rollout's speed."""
        return {
            **{f"time/{part}": seconds for part, seconds in self._seconds.items()},
            "time/update": time.perf_counter() - self._began,
            "speed/rollout_tokens_per_s": tokens_sampled / self._seconds["rollout"],
        }
