"""Ends a process that makes no progress any more, and prints where it stood."""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
import time
from collections.abc import Callable

EXIT_CODE = 70
"""Of a process that the watchdog ended (EX_SOFTWARE)."""


class Watchdog:
    """Writes all threads' stacks to standard error and ends the process if nobody calls `pat` in time.

    A thread keeps watch. It cannot run where some library never gives the interpreter back; so it has
    `faulthandler`, which needs no interpreter, end the process (code 1) should the thread itself stand still.
    Nothing is cleaned up in either case: what hangs could hang again.

    Args:
        seconds: Without a `pat`; None: never.
        describe: What is being waited for, in words.
    """

    def __init__(self, seconds: float | None, describe: Callable[[], str]) -> None:
        self._seconds, self._describe = seconds, describe
        self._last = time.monotonic()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def pat(self) -> None:
        """Says that something has moved on."""
        self._last = time.monotonic()

    def __enter__(self) -> Watchdog:
        if self._seconds is not None:
            self.pat()
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def _watch(self) -> None:
        try:
            while not self._over.is_set():
                faulthandler.dump_traceback_later(2 * self._seconds, exit=True, file=sys.__stderr__)
                left = self._last + self._seconds - time.monotonic()
                if left <= 0:
                    self._end()
                self._over.wait(max(left, 0.01))
        finally:
            faulthandler.cancel_dump_traceback_later()

    def _end(self) -> None:
        print(
            f"rollout: nothing has moved for {self._seconds:g} s (rollout.watchdog_s). {self._describe()} "
            "Stacks of all threads follow; the process ends here.",
            file=sys.__stderr__,
            flush=True,
        )
        faulthandler.dump_traceback(file=sys.__stderr__, all_threads=True)
        os._exit(EXIT_CODE)
