"""What `sweep` and `ablate` share: a run from its options, checked; its command; what a person sees."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from commands.build.declared import check_world, credit_pipeline
from commands.build.models import ROOT
from configs.load import Loaded, load, plain
from configs.neutral import NOTHING, ROUNDING, effect, without
from configs.text import ConfigError, suggest
from eval.experiments.folder import Run
from eval.experiments.launch import Job, Launcher, Local, visible_gpus
from eval.experiments.points import overrides, typed
from eval.format import duration, number
from eval.statistics import SHARE, Range

_LONGEST_NAME = 80
_FREE = (NOTHING, ROUNDING)
_BRING_OTHERS = ("protocol", "credit.settings")
"""Neutral themselves, but said to a resumed run they would set again what its configuration holds already."""


def make_run(
    experiment: str,
    fixed: Sequence[str],
    point: Mapping[str, Any],
    *,
    folder: Path,
    label: str | None = None,
    options: Mapping[str, Any] | None = None,
    logging: Sequence[str] = (),
) -> tuple[Run, Loaded]:
    """Returns a run of a sweep or an ablation, its configuration checked.

    Its folder's name ends with a digest of its configuration, so that a changed file, or another version's
    defaults, never takes an old run for a new one. What changes no result, or only its rounding, does not
    count, unless the point itself varies it: where and on how many threads a run was made is no reason to
    make it again.

    Args:
        experiment: As on the command line.
        fixed: Overrides that all runs share.
        point: What distinguishes it, `seed` included.
        folder: Of all runs.
        label: What it is compared under; default: spelled from `point` without its seed.
        options: Overrides of this run (default: `point`).
        logging: More overrides, which change nothing about the run itself.

    Raises:
        ConfigError: The configuration cannot be used; the point is named.
    """
    options = point if options is None else options
    own = overrides(options)
    short = {name: value for name, value in point.items() if name != "seed"}
    spelled = ", ".join(f"{name.rpartition('.')[2]}={typed(value)}" for name, value in short.items())
    try:
        loaded = load(experiment, [*fixed, *own])
        check_world(loaded)
        credit_pipeline(loaded)
    except ConfigError as error:
        raise ConfigError(f"at {' '.join(own)}:\n{error}") from error
    config = loaded.config
    matters = without(plain(config), _FREE)
    if varied := {name: value for name, value in options.items() if effect(name) in _FREE}:
        matters["varied"] = varied
    digest = hashlib.sha256(json.dumps(matters, sort_keys=True).encode()).hexdigest()[:8]
    words = re.sub(r"[^\w.+-]+", "-", f"{label or spelled}".replace("=", "")).strip("-")[:_LONGEST_NAME]
    name = "-".join(filter(None, (words, f"s{config.seed}", digest)))
    run = Run(
        name=name,
        folder=folder / name,
        arguments=(experiment, *fixed, *own, *logging),
        group=label or spelled or config.name,
        seed=config.seed,
        updates=config.train.updates,
        point=short,
    )
    return run, loaded


def metric_range(name: str) -> Range | None:
    """Returns the range of a metric's values, None if it has none.

    Raises:
        ConfigError: Runs log no metric of that name.
    """
    from rl.tracking.metrics import METRICS, describe

    try:
        unit, meaning = describe(name)
        share = unit in ("share", "0–1") or meaning.startswith("share of ")  # credit metrics have no unit
        return SHARE if share else None
    except KeyError:
        raise ConfigError(
            f"runs log no metric {name!r}{suggest(name, METRICS)} docs/metrics.md lists them"
        ) from None


def job(run: Run, resume: bool) -> Job:
    """Returns the command that starts a run, or goes on with it."""
    if resume:
        action = ["--resume", str(run.folder), *_as_asked_now(run)]
    else:
        action = [*run.arguments, "--out", str(run.folder)]
    return Job(run.name, [sys.executable, str(ROOT / "run.py"), "train", *action], log_of(run))


def _as_asked_now(run: Run) -> list[str]:
    """The overrides of a run that it may be resumed with: its servers may have moved since it was killed."""
    names = {said: said.partition("=")[0] for said in run.arguments[1:]}
    return [said for said, name in names.items() if effect(name) in _FREE and name not in _BRING_OTHERS]


def log_of(run: Run) -> Path:
    """Returns where a run's output goes."""
    return run.folder.parent / "logs" / f"{run.name}.log"


def launcher(name: str, folder: Path, options: Sequence[str]) -> Launcher:
    """Returns the launcher of that name.

    Args:
        name: local, slurm or ray.
        folder: Of the sweep.
        options: `key=value`: submitit's parameters for slurm; `gpus` and `address` for ray.

    Raises:
        ConfigError: No such launcher, or it cannot be used here.
    """
    pairs = dict(option.partition("=")[::2] for option in options)
    if name == "local":
        return Local(visible_gpus())
    from eval.experiments.launch_cluster import Ray, Slurm

    if name == "slurm":
        return Slurm(folder / "slurm", pairs)
    if name == "ray":
        return Ray(pairs.get("address"), float(pairs.get("gpus", 0)))
    raise ConfigError(f"no launcher {name!r}{suggest(name, ['local', 'slurm', 'ray'])}")


def slots(asked: int | None, name: str, threads: int) -> int:
    """Returns how many runs go at a time: as asked; else one a GPU, or as many as the cores allow."""
    if asked:
        return asked
    if name != "local":
        return 8
    return len(visible_gpus()) or max(1, (os.cpu_count() or 1) // threads if threads else 1)


@contextmanager
def interruptible() -> Iterator[None]:
    """Lets a termination signal stop the runs as Ctrl-C does."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class Watch:
    """Shows runs: a bar each on a terminal, a line for each that starts or ends elsewhere."""

    def __init__(self, total: int, parallel: int, metric: str, console: Console) -> None:
        """Shows nothing yet."""
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
        """Ends it."""
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
        """Moves its bar."""
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
