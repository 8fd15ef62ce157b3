"""Rolling out the next update's trajectories while the one before trains."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

import torch

T = TypeVar("T")


class Prefetch(Generic[T]):
    """Work for later that is done in a thread from now on.

    A daemon thread: a run that is stopped does not wait for a rollout's end. It works on the accelerator of
    the thread that made it: a new thread would begin with the machine's first, whatever the process was
    given.

    Args:
        work: What to do; it must not touch what this thread uses before `take` or `wait` has returned.
    """

    def __init__(self, work: Callable[[], T]) -> None:
        self._result: Future[T] = Future()
        self._device = torch.cuda.current_device() if torch.cuda.is_available() else None
        threading.Thread(target=self._run, args=(work,), name="rollout ahead", daemon=True).start()

    def wait(self) -> None:
        """Returns when the work has ended, well or not."""
        self._result.exception()

    def take(self) -> T:
        """Waits for the result, and raises what the work raised."""
        return self._result.result()

    def _run(self, work: Callable[[], T]) -> None:
        try:
            if self._device is not None:
                torch.cuda.set_device(self._device)
            self._result.set_result(work())
        except BaseException as error:  # not swallowed: `take` raises it where the run can end
            self._result.set_exception(error)
