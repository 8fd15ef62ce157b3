"""The display of a sweep's or an ablation's runs while they train."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from commands.experiments.one_run import log_of
from eval.experiments.folder import Run
from eval.format import duration, number


class Watch:
    """Shows the runs: on a terminal one bar per run, elsewhere one line per start and end of a run."""

    def __init__(self, total: int, parallel: int, metric: str, console: Console) -> None:
        """Prepares the display; entering the context shows it."""
        self._total, self._parallel, self._metric, self._console = total, parallel, metric, console
        self._done, self._seconds = 0, []
        self._began: dict[str, float] = {}
        self._bars: dict[str, Any] = {}
        columns = (TextColumn("{task.description}"), BarColumn(24), MofNCompleteColumn())
        self._all = Progress(*columns, TimeElapsedColumn(), TextColumn("{task.fields[left]}"))
        self._runs = Progress(*columns, TextColumn("{task.fields[value]}"))
        self._task = self._all.add_task("runs", total=total, left="")
        self._live = Live(Group(self._all, self._runs), console=console) if console.is_terminal else None

    def __enter__(self) -> Watch:
        """Starts the live display."""
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Ends the live display."""
        if self._live:
            self._live.stop()

    def started(self, run: Run, how: str) -> None:
        """Says that a run is under way."""
        words = {
            "new": "started",
            "resumed": f"resumed after update {run.update}",
            "elsewhere": "already under way",
        }
        self._say(f"{run.name}: {words[how]}")
        self._began[run.name] = time.perf_counter()
        self._bars[run.name] = self._runs.add_task(run.name, total=run.updates, value="")

    def running(self, run: Run) -> None:
        """Moves the run's bar."""
        if self._live:
            value = run.value(self._metric)
            shown = "" if value is None else f"{self._metric} {number(value)}"
            self._runs.update(self._bars[run.name], completed=run.update, value=shown)

    def ended(self, run: Run, how: str) -> None:
        """Says how a run ended and what it reached."""
        self._done += 1
        value = run.value(self._metric)
        took = ""
        if run.name in self._began:
            seconds = time.perf_counter() - self._began.pop(run.name)
            self._seconds.append(seconds)
            took = f" · {duration(seconds)}"
            self._runs.remove_task(self._bars.pop(run.name))
        words = {"kept": "finished before", "stopped": f"stopped early after update {run.update}"}
        if how == "failed":
            self._say(
                f"[{self._done}/{self._total}] {run.name}: FAILED; the end of {log_of(run)}:\n"
                f"{tail(log_of(run))}"
            )
        else:
            reached = "" if value is None else f" · {self._metric} {number(value)}"
            self._say(f"[{self._done}/{self._total}] {run.name}: {words.get(how, how)}{reached}{took}")
        self._all.update(self._task, completed=self._done, left=self._left())

    def _left(self) -> str:
        if not self._seconds:
            return ""
        each = sum(self._seconds) / len(self._seconds)
        return f"about {duration(each * (self._total - self._done) / self._parallel)} left"

    def _say(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False)


def tail(log: Path, lines: int = 12) -> str:
    """Returns the last lines of a log, indented."""
    if not log.is_file():
        return "  (nothing was printed)"
    text = log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:]
    return "\n".join(f"  {line}" for line in text)
