"""Starts runs as processes of this machine, one per slot; clusters are in `launch_cluster`."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Protocol

GRACE = 30.0  # s between asking a run to stop and ending it


@dataclass(frozen=True)
class Job:
    """A command for a run.

    Attributes:
        name: The run's; unique in the sweep.
        command: To execute, in the current folder.
        log: Gets what it prints.
        env: Added to the environment.
    """

    name: str
    command: Sequence[str]
    log: Path
    env: Mapping[str, str] = field(default_factory=dict)


class Handle(Protocol):
    """A job under way."""

    def poll(self) -> int | None:
        """Returns the exit code, None while it runs."""

    def stop(self) -> None:
        """Ends it, so that it could go on later; returns when it has ended."""


class Launcher(Protocol):
    """Starts jobs."""

    def start(self, job: Job, slot: int) -> Handle:
        """Starts a job in a slot (0 … parallel − 1)."""

    def running(self, log: Path) -> Handle | None:
        """Returns the job with this log if one started earlier (by another sweep command) is under way."""


class Local:
    """Processes of this machine. A run is locked while a process works on it, whoever started that."""

    def __init__(self, gpus: Sequence[str] = ()) -> None:
        """Gives every slot one of `gpus`, entries of CUDA_VISIBLE_DEVICES; without any it changes nothing."""
        self._gpus = list(gpus)

    def start(self, job: Job, slot: int) -> Handle:
        """Starts a process; it keeps the lock for as long as it lives, also if this one is killed."""
        job.log.parent.mkdir(parents=True, exist_ok=True)
        lock = _lock(job.log)
        if lock is None:
            return _Elsewhere(job.log)
        env = {**os.environ, **job.env}
        if self._gpus:
            env["CUDA_VISIBLE_DEVICES"] = self._gpus[slot % len(self._gpus)]
        with job.log.open("ab") as log, lock:
            process = subprocess.Popen(
                list(job.command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=env,
                pass_fds=(lock.fileno(),),
                start_new_session=True,  # Ctrl-C reaches the sweep, which stops its runs one by one
            )
        return _Process(process)

    def running(self, log: Path) -> Handle | None:
        """Returns a handle that waits for the lock."""
        if not log.parent.is_dir():
            return None
        lock = _lock(log)
        if lock is None:
            return _Elsewhere(log)
        lock.close()
        return None


def _lock(log: Path) -> IO[bytes] | None:
    file = log.with_suffix(".lock").open("wb")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    return file


class _Process:
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def poll(self) -> int | None:
        return self._process.poll()

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(GRACE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class _Elsewhere:
    """A run that a process of another sweep command works on."""

    def __init__(self, log: Path) -> None:
        self._log = log

    def poll(self) -> int | None:
        lock = _lock(self._log)
        if lock is None:
            return None
        lock.close()
        return 0  # how it ended, its folder says

    def stop(self) -> None:
        """Leaves it to whoever started it."""


def visible_gpus() -> list[str]:
    """Returns this machine's GPUs as entries of CUDA_VISIBLE_DEVICES; that variable, if set, says which."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [one.strip() for one in named.split(",") if one.strip() not in ("", "-1")]
    try:
        asked = ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"]
        found = subprocess.run(asked, capture_output=True, text=True, check=True, timeout=60).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    return found.split()
