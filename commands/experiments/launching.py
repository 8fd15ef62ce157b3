"""What `sweep` and `ablate` share: their options, and the loop that starts runs and watches them."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from commands.experiments.one_run import job
from commands.experiments.watch import Watch
from configs.text import ConfigError, suggest
from eval.experiments.folder import Run
from eval.experiments.launch import Launcher, Local, visible_gpus
from eval.experiments.point_search import Race
from eval.experiments.runner import Runner, Source


@dataclass(frozen=True)
class Options:
    """What the command line says besides the file and the overrides; see `run.py sweep --help`."""

    parallel: int | None = None
    count: int | None = None
    seed: int = 0
    out: Path | None = None
    launcher: str = "local"
    launcher_options: Sequence[str] = ()
    dry_run: bool = False


def list_commands(runs: Sequence[Run], console: Console) -> None:
    """Prints the state and the command of each run (`--dry-run`)."""
    for run in runs:
        console.print(f"{run.name} · {run.state} · run.py train {' '.join(run.arguments)}", markup=False)


def run_all(
    source: Source,
    folder: Path,
    options: Options,
    *,
    parallel: int,
    metric: str,
    console: Console,
    race: Callable[[], Race] | None = None,
) -> None:
    """Starts every run that `source` gives, or goes on with it, and shows the progress until all have ended.

    Args:
        source: Gives the runs.
        folder: The folder of all runs; must exist.
        options: Which launcher, and its options.
        parallel: Runs at a time.
        metric: The metric shown for each run.
        console: Where the progress is shown.
        race: Makes the rule that stops bad runs early.

    Raises:
        KeyboardInterrupt: Stopped by the user or a termination signal; the same command goes on.
    """
    watch = Watch(source.total, parallel, metric, console)
    starts = launcher(options.launcher, folder, options.launcher_options)
    try:
        with interruptible(), watch:
            Runner(starts, parallel, job, watch, metric, race=race).run(source)
    except KeyboardInterrupt:
        console.print("stopped; the same command goes on where it stopped")
        raise


def tell_missing(missing: int, total: int, folder: Path, console: Console) -> None:
    """Says that runs did not finish."""
    console.print(
        f"{missing} of {total} runs did not finish (see {folder / 'logs'}); the same command tries again"
    )


def launcher(name: str, folder: Path, options: Sequence[str]) -> Launcher:
    """Returns the launcher of that name.

    Args:
        name: local, slurm or ray.
        folder: The folder of all runs.
        options: `key=value`: submitit's parameters for slurm; `gpus` and `address` for ray.

    Raises:
        ConfigError: There is no such launcher, or it cannot be used here.
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
    """Returns how many runs train at a time: as asked; else one per GPU, or as many as the cores allow."""
    if asked:
        return asked
    if name != "local":
        return 8
    return len(visible_gpus()) or max(1, (os.cpu_count() or 1) // threads if threads else 1)


@contextmanager
def interruptible() -> Iterator[None]:
    """Lets SIGTERM stop the runs as Ctrl-C does."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
