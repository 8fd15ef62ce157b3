"""What a process owes its launcher (`commands.launch`): to end with it, and not to repeat the others."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time
from collections.abc import Mapping
from pathlib import Path

LAUNCHER, MISTAKES = "SIBLING_LAUNCHER", "SIBLING_MISTAKES"
"""Variables that the launcher sets for its processes: its process id; a folder for what they complain of."""

_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG, linux/prctl.h


def end_with_launcher() -> None:
    """Ends this process when its launcher ends, however that happens; without a launcher, nothing.

    A launcher that is killed tells nobody, and its processes would wait for each other, with their memory and
    accelerators, until a time-out.
    """
    launcher = os.environ.get(LAUNCHER)
    if launcher is None:
        return
    if hasattr(signal, "SIGKILL") and Path("/proc/self").exists():
        ctypes.CDLL(None, use_errno=True).prctl(_DEATH_SIGNAL, signal.SIGKILL)
    threading.Thread(target=_watch, args=(int(launcher),), name="launcher", daemon=True).start()


def _watch(launcher: int) -> None:
    """The same without Linux's help, and for a launcher that ended before it was asked for."""
    while os.getppid() == launcher:
        time.sleep(1.0)
    os._exit(1)


def complain(text: str) -> bool:
    """Leaves a user's mistake for the launcher to print; returns whether there is one that will."""
    folder = os.environ.get(MISTAKES)
    if folder is None or "RANK" not in os.environ:
        return False
    Path(folder, os.environ["RANK"]).write_text(text, encoding="utf-8")
    return True


def print_mistake(text: str) -> None:
    """Prints a user's mistake, red, on standard error."""
    from rich.console import Console

    Console(stderr=True, highlight=False).print(text, style="red", markup=False, soft_wrap=True)


def complaints(folder: Path) -> Mapping[str, list[int]]:
    """What the processes complained of, each once → the ranks that did."""
    found: dict[str, list[int]] = {}
    for path in sorted(folder.iterdir(), key=lambda path: int(path.name)):
        found.setdefault(path.read_text(encoding="utf-8"), []).append(int(path.name))
    return found
