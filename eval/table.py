"""An evaluation as tables for the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rich.table import Table

if TYPE_CHECKING:
    from eval.attempt_counts import AttemptCounts

_COLUMNS = (
    "n",
    "success",
    "95 % over tasks",
    "score",
    "95 % over tasks",
    "steps",
    "valid",
    "admissible",
    "cut off",
)


def family_table(counted_by: Mapping[str, AttemptCounts], title: str | None) -> Table:
    """Returns one row for each tally; the last is all of them together."""
    table = Table(title=title)
    table.add_column("family")
    for name in _COLUMNS:
        table.add_column(name, justify="right")
    _fill(table, {name: _cells(counted) for name, counted in counted_by.items()})
    return table


def attempts_table(counted_by: Mapping[str, AttemptCounts]) -> Table:
    """Returns pass@j and pass^j of every tally, for every reported j."""
    *_, together = counted_by.values()
    k = together.samples
    table = Table(
        title=f"{k} attempts at each task (pass@j: one of j succeeds; pass^j: all do; intervals over tasks)"
    )
    table.add_column("family")
    for name in ("pass@", "pass^"):
        for j in (rate.j for rate in together.passes):
            table.add_column(f"{name}{j}", justify="right")
            if j == k:
                table.add_column("95 % over tasks", justify="right")
    _fill(table, {name: _passes(counted) for name, counted in counted_by.items()})
    return table


def _fill(table: Table, rows: Mapping[str, list[str]]) -> None:
    *families, together = rows
    for name in families:
        table.add_row(name, *rows[name])
    table.add_section()
    table.add_row(together, *rows[together], style="bold")


def _cells(counted: AttemptCounts) -> list[str]:
    """Returns a tally as the cells of a table's row."""
    return [
        str(counted.n),
        f"{counted.rate:.3f}",
        _interval(counted.lo, counted.hi),
        f"{counted.score:.3f}",
        _interval(counted.score_lo, counted.score_hi),
        f"{counted.mean_steps:.1f}",
        f"{counted.valid:.1%}",
        f"{counted.admissible:.1%}",
        f"{counted.truncated:.1%}",
    ]


def _passes(counted: AttemptCounts) -> list[str]:
    *_, largest = counted.passes
    at = [f"{rate.at:.3f}" for rate in counted.passes]
    hat = [f"{rate.hat:.3f}" for rate in counted.passes]
    return [
        *at,
        _interval(largest.at_lo, largest.at_hi),
        *hat,
        _interval(largest.hat_lo, largest.hat_hi),
    ]


def _interval(lo: float, hi: float) -> str:
    return f"[{lo:.2f}, {hi:.2f}]"
