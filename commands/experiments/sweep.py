"""`run.py sweep`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from commands.build.terminal import open_console
from commands.experiments.launching import Options, list_commands, run_all, slots, tell_missing
from commands.experiments.one_run import make_run
from configs.load import CONFIGS, Loaded, find
from configs.text import ConfigError, read_yaml, suggest
from eval.experiments import points
from eval.experiments.folder import Run
from eval.experiments.point_search import Bayes, Race
from eval.experiments.runner import Listed, Proposed, Source
from eval.experiments.spec import Parameter, SweepFile, read_sweep
from eval.experiments.sweep import Found
from eval.statistics import SHARE, Range

FOLDER = CONFIGS / "sweeps"
SWEEPS = Path("runs") / "sweeps"


def run(file: str, overrides: Sequence[str], options: Options) -> int:
    """Runs or resumes a sweep and writes its table and picture; returns how many runs are missing."""
    console = open_console()
    path = find(file, FOLDER)
    sweep, _ = read_sweep(path)
    sweep, fixed = pinned(sweep, overrides)
    metric_range(sweep.metric.name)
    folder = options.out or SWEEPS / path.stem
    runs = SweepRuns(sweep, fixed, folder, options)
    source, first = runs.source()
    if sweep.early_terminate:
        check_early(sweep, first)
    parallel = slots(options.parallel, options.launcher, first.config.threads)
    console.print(
        f"{folder} · {sweep.method} · {source.total} runs, {parallel} at a time · {sweep.metric.name}"
    )
    if options.dry_run:
        list_commands(runs.listed, console)
        return 0
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sweep.yaml").write_bytes(path.read_bytes())
    run_all(
        source,
        folder,
        options,
        parallel=parallel,
        metric=sweep.metric.name,
        console=console,
        race=(lambda: Race(sweep.early_terminate, sweep.metric.goal)) if sweep.early_terminate else None,
    )
    return finish(sweep, runs.listed, source.total, folder, console)


def pinned(sweep: SweepFile, overrides: Sequence[str]) -> tuple[SweepFile, list[str]]:
    """Applies the command line's overrides: a varied option becomes constant, all others are for every run.

    Raises:
        ConfigError: An override is not `key=value`.
    """
    _, fixed = sweep.experiment()
    parameters = dict(sweep.parameters)
    for item in overrides:
        name, equals, text = item.partition("=")
        if not equals:
            raise ConfigError(f"cannot read the override {item!r}: write key.path=value")
        if name in parameters:
            parameters[name] = Parameter(value=read_yaml(text, f"the override {item!r}"))
        else:
            fixed.append(item)
    return sweep.model_copy(update={"parameters": parameters}), fixed


class SweepRuns:
    """The runs of a sweep: all known from the start, or proposed one after another (bayes)."""

    def __init__(self, sweep: SweepFile, fixed: Sequence[str], folder: Path, options: Options) -> None:
        """Keeps the arguments; `source` checks them."""
        self._sweep, self._fixed, self._folder, self._options = sweep, fixed, folder, options
        self._seeds = points.seeds(sweep) or [None]
        self._proposed: Proposed | None = None
        self._listed: list[Run] = []

    @property
    def listed(self) -> list[Run]:
        """The runs known so far."""
        return self._proposed.runs if self._proposed else self._listed

    def source(self) -> tuple[Source, Loaded]:
        """Returns the source of the runs, all configurations checked, and one of the configurations.

        Raises:
            ConfigError: A point's configuration cannot be used, or nothing limits the number of runs.
        """
        sweep = self._sweep
        if sweep.method == "bayes":
            return self._search()
        if sweep.method == "grid":
            found = points.grid(sweep)[: self._count(required=False)]
        else:
            found = points.random(sweep, self._count(), self._options.seed)
        made = [self._make(point, seed) for point in found for seed in self._seeds]
        self._listed = [one for one, _ in made]
        same = {one.name for one in self._listed}
        if len(same) < len(self._listed):
            raise ConfigError("two points of the sweep have the same configuration: remove one")
        return Listed(self._listed), made[0][1]

    def _search(self) -> tuple[Source, Loaded]:
        bayes = Bayes(self._sweep, self._folder / "points.jsonl", self._options.seed)
        checked = [self._make(corner, self._seeds[0])[1] for corner in points.corners(self._sweep)]

        def make(number: int) -> list[Run]:
            return [self._make(bayes.points[number], seed)[0] for seed in self._seeds]

        count, seeds = self._count(), len(self._seeds)
        self._proposed = Proposed(bayes, make, self._sweep.metric.name, count=count, seeds=seeds)
        return self._proposed, checked[0]

    def _count(self, required: bool = True) -> int | None:
        """Number of points: `--count`, or as many as `run_cap` runs allow."""
        if self._options.count:
            return self._options.count
        if self._sweep.run_cap:
            return max(1, self._sweep.run_cap // len(self._seeds))
        if required:
            raise ConfigError(
                f"a {self._sweep.method} sweep never ends by itself: set run_cap, or give --count"
            )
        return None

    def _make(self, point: points.Point, seed: int | None) -> tuple[Run, Loaded]:
        whole: dict[str, Any] = dict(point) if seed is None else {**point, "seed": seed}
        experiment, _ = self._sweep.experiment()
        group = f"logging.group={self._folder.name}"
        return make_run(
            experiment, self._fixed, whole, folder=self._folder, logging=[group, "logging.tags=[sweep]"]
        )


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


def check_early(sweep: SweepFile, loaded: Loaded) -> None:
    """Raises a ConfigError if the metric that early stopping watches is not measured during training."""
    if sweep.metric.name.startswith("eval/") and loaded.config.eval.every == 0:
        raise ConfigError(
            f"early_terminate watches {sweep.metric.name}, but eval.every=0 evaluates before and after only: "
            "set eval.every, or watch rollout/success"
        )


def finish(sweep: SweepFile, runs: Sequence[Run], total: int, folder: Path, console: Console) -> int:
    """Writes and prints the results; returns how many runs did not finish."""
    varied = [name for name in points.dimensions(sweep) if len({str(run.point[name]) for run in runs}) > 1]
    varied = varied or list(points.dimensions(sweep))[:1]
    maximize = sweep.metric.goal == "maximize"
    found = Found(sweep.metric.name, maximize, runs, varied, metric_range(sweep.metric.name))
    table = found.table(folder.name)
    written = table.write(folder / "table.md")
    missing = total - sum(run.state in ("finished", "stopped") for run in runs)
    if missing < total:
        written += found.write_picture(folder / "picture.svg", folder.name)
    console.print(table.rich())
    console.print(f"written: {', '.join(map(str, written))}", markup=False)
    if missing:
        tell_missing(missing, total, folder, console)
    elif (best := found.rows()[0])["mean"] is not None:
        spelled = " ".join(points.overrides({name: best[name] for name in varied}))
        console.print(
            f"best of {total} runs: {spelled} · {sweep.metric.name} {best['mean']:.3f}", markup=False
        )
    return missing
