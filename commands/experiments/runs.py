"""`run.py list` and `run.py compare`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from commands.build.terminal import open_console
from configs.text import ConfigError
from eval.compare import MCNEMAR, Comparison
from eval.experiments.ablation import p_value
from eval.format import NONE, duration, number, option, signed
from eval.result import EvalResult
from eval.runfolder import RunFolder
from eval.runlist import ListedRun, config_differences, entry, evaluations, find_runs, last_values
from eval.statistics import cohen_h

SHOWN = ("eval/", "rollout/", "credit/", "train/")


def list_runs(folder: Path) -> None:
    """Prints the runs in and below a folder, one per line.

    Raises:
        ConfigError: There is no such folder.
    """
    if not folder.is_dir():
        raise ConfigError(f"no folder {folder}: `run.py train` makes runs/, or name another")
    console = open_console()
    entries = [entry(path) for path in find_runs(folder)]
    table = Table(title=f"{len(entries)} runs in {folder}")
    table.add_column("run", overflow="fold")
    table.add_column("method", overflow="fold")
    for name in ("seed", "updates", "before", "after", "difference", "time"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("state")
    for one in entries:
        table.add_row(str(one.path.relative_to(folder)) if one.path != folder else str(folder), *_cells(one))
    console.print(table)
    for one in entries:
        for text in one.damaged:
            console.print(f"{one.path}: {text}", markup=False)


def _cells(one: ListedRun) -> Iterable[str]:
    run = one.run
    if run is None:
        return (NONE, NONE, NONE, NONE, NONE, NONE, NONE, one.state)
    before, after = run.before, run.after
    difference = signed(after.success - before.success) if before and after else NONE
    return (
        run.method,
        option(run.get("seed")),
        f"{run.updates}/{option(run.get('train.updates'))}",
        NONE if before is None else f"{before.success:.3f}",
        NONE if after is None else f"{after.success:.3f}",
        difference,
        duration(run.seconds),
        one.state,
    )


def _success(result: EvalResult) -> str:
    return f"{result.success:.3f} [{result.ci[0]:.2f}, {result.ci[1]:.2f}]"


def compare_runs(a: Path, b: Path) -> None:
    """Prints how two runs differ: options, success on the same tasks, last metrics.

    Raises:
        EvalError: `a` or `b` is no run folder.
    """
    console = open_console()
    first, second = RunFolder.read(a), RunFolder.read(b)
    console.print(f"A {a}\nB {b}", markup=False)
    _options(first, second, console)
    for found in evaluations(first, second):
        console.print(
            f"\n{found.label} training: A {_success(found.a)} · B {_success(found.b)}", markup=False
        )
        if found.paired is None:
            console.print(
                "not the same tasks, so not paired: evaluate both with the same eval.split and eval.tasks"
            )
        else:
            console.print(_paired(found.paired), markup=False)
            _families(found.a, found.b, console)
    _metrics(first, second, console)


def _options(a: RunFolder, b: RunFolder, console: Console) -> None:
    rows = config_differences(a, b)
    if not rows:
        console.print("the same options")
        return
    table = Table("option", "A", "B", title="Options that differ")
    for key, x, y in rows:
        table.add_row(key, option(x), option(y))
    console.print(table)


def _paired(found: Comparison) -> str:
    """Returns one sentence on the difference on the same tasks."""
    return (
        f"B − A {signed(found.difference, 3)} [{signed(found.lo, 3)}, {signed(found.hi, 3)}] on the same "
        f"{found.n} tasks · {found.test} p {p_value(found.p)} · Cohen's h "
        f"{signed(cohen_h(found.before, found.after))} · {_changes(found)}. Interval and test are over "
        "tasks: these two policies on other tasks, not other training runs"
    )


def _changes(found: Comparison) -> str:
    """Returns on how many tasks the two runs differ."""
    if found.test != MCNEMAR:
        return f"A solves {found.lost} tasks more often, B {found.gained}, none {found.neither}"
    return f"only A solves {found.lost}, only B {found.gained}, both {found.both}, none {found.neither}"


def _families(a: EvalResult, b: EvalResult, console: Console) -> None:
    table = Table("family", title="By task family")
    for name in ("tasks", "A", "B", "B − A"):
        table.add_column(name, justify="right")
    for family, counted in a.per_family.items():
        other = b.per_family[family]
        table.add_row(
            family,
            str(counted.n),
            f"{counted.rate:.3f}",
            f"{other.rate:.3f}",
            signed(other.rate - counted.rate, 3),
        )
    console.print(table)


def _metrics(a: RunFolder, b: RunFolder, console: Console) -> None:
    first, second = last_values(a), last_values(b)
    names = [name for name in sorted({**first, **second}) if name.startswith(SHOWN)]
    table = Table("metric", title=f"Last values (A: update {a.updates}, B: update {b.updates})")
    for name in ("A", "B"):
        table.add_column(name, justify="right")
    for name in names:
        table.add_row(name, number(first.get(name)), number(second.get(name)))
    console.print(table)
