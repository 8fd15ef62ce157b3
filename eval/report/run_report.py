"""The report of a run: one HTML file that needs no network, made from the files of the run folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from credit.pipeline import METRICS as CREDIT_METRICS
from eval.best import best_of
from eval.compare import Comparison, compare, disjoint
from eval.report import figures
from eval.report.alarms import read_alarms
from eval.report.costs import phases, tokens
from eval.report.effects import effects
from eval.report.environment import recorded
from eval.report.group_view import GroupView, choose_group
from eval.report.report_plots import CREDIT_PLOTS, PLOTS, SUCCESS
from eval.report.svg import sparkline
from eval.report.templating import environment
from eval.result import AttemptCounts
from eval.runfolder import RunFolder, leaves
from eval.summary import result_line


def write_report(run_dir: Path | str, *, meanings: Mapping[str, str] | None = None) -> Path:
    """Writes `run_dir/report.html` from whatever the run has written so far.

    Args:
        run_dir: A run folder; config.json must exist, everything else may be missing.
        meanings: See `report_html`.

    Returns:
        The report's path.

    Raises:
        EvalError: it is no run folder, or one of its files is broken.
    """
    run = RunFolder.read(run_dir)
    path = run.path / "report.html"
    path.write_text(report_html(run, meanings), encoding="utf-8")
    return path


def report_html(run: RunFolder, meanings: Mapping[str, str] | None = None) -> str:
    """Returns the report of a run as one HTML page.

    Args:
        run: The run.
        meanings: What options (dotted paths as in config.json) and metrics (`a/b`, or `a/*` for all of
            one kind) mean, shown in the tables. Credit metrics are known without.
    """
    meanings = {**CREDIT_METRICS, **(meanings or {})}
    group = choose_group(run.trajectories)
    both = run.before is not None and run.after is not None
    path = run.path / "report.html"
    return (
        environment()
        .get_template("report.html.j2")
        .render(
            run=run,
            alarms=read_alarms(run.path),
            line=result_line(run, path) if both else None,
            paired=_paired(run) if both else None,
            disjoint=both and disjoint(run.before, run.after),
            success=_success(run),
            plots=_plots(run, PLOTS, "panel"),
            families=figures.family_figure(run.before, run.after) if run.evals else None,
            family_rows=_family_rows(run),
            best=best_of(run),
            credit_plots=_plots(run, CREDIT_PLOTS, "credit"),
            credit=_metric_rows(run, "credit/", meanings),
            effects=effects(run.metrics),
            phases=phases(run),
            tokens=tokens(run),
            environment=recorded(run.path),
            metrics=_metric_rows(run, "", meanings),
            group=group,
            pairs=_pairs(group) if group else [],
            config=_config(run, meanings),
        )
    )


def _paired(run: RunFolder) -> Comparison | None:
    """Compares first and last evaluation if they played the same tasks (eval.tasks may change on resume)."""
    same = run.before.task_ids == run.after.task_ids
    return compare(run.before, run.after) if same else None


def _success(run: RunFolder) -> Markup | None:
    training = run.series(SUCCESS)
    return figures.success_figure(training, run.evals) if training[0] or run.evals else None


def _plots(run: RunFolder, plots: Sequence[figures.Plot], prefix: str) -> list[tuple[str, Markup]]:
    """Returns (title, figure) of every panel of which some metric was logged."""
    drawn = []
    for i, plot in enumerate(plots):
        curves = {name: run.series(name) for name in plot.names}
        curves = {name: curve for name, curve in curves.items() if curve[0]}
        if curves:
            drawn.append((plot.title, figures.plot_figure(plot, curves, f"{prefix}{i}")))
    return drawn


def _family_rows(run: RunFolder) -> list[tuple[str, AttemptCounts | None, AttemptCounts | None]]:
    """Returns (family, before, after), then all tasks together."""
    before = run.before.per_family if run.before else {}
    after = run.after.per_family if run.after else {}
    rows = [(name, before.get(name), after.get(name)) for name in sorted(before.keys() | after.keys())]
    if rows:
        rows.append(("all tasks", run.before and run.before.overall, run.after and run.after.overall))
    return rows


def _metric_rows(run: RunFolder, prefix: str, meanings: Mapping[str, str]) -> list[dict[str, Any]]:
    """Returns name, first and last value, sparkline and meaning of every metric with that prefix."""
    rows = []
    for name in sorted({name for record in run.metrics for name in record}):
        if name == "update" or not name.startswith(prefix):
            continue
        values = run.series(name)[1]
        meaning = meanings.get(name) or meanings.get(name.rpartition("/")[0] + "/*", "")
        ends = {"first": values[0], "last": values[-1]}
        rows.append({"name": name, **ends, "spark": sparkline(values), "meaning": meaning})
    return rows


def _pairs(group: GroupView) -> list[dict[str, Any]]:
    """Returns the pairs of siblings with their figure and the selectors that light up matched steps."""
    pairs = []
    for i, (left, right) in enumerate(group.pairs):
        name = f"pair{i}"
        selectors = []
        for step in right.steps:
            if step.match is not None and step.match[0] == left.index:
                here, there = f"#{name}-r-{step.t}", f"#{name}-l-{step.match[1]}"
                selectors += [f"#{name}:has({here}:hover) {there}", f"#{name}:has({there}:hover) {here}"]
        figure = figures.match_figure(left, right, group.largest, name) if left is not right else None
        rules = Markup(",\n".join(selectors))
        pairs.append({"name": name, "left": left, "right": right, "figure": figure, "rules": rules})
    return pairs


def _config(run: RunFolder, meanings: Mapping[str, str]) -> dict[str, list[tuple[str, Any, str, str]]]:
    """Returns section → (dotted path, value, where it came from, meaning), in the order of config.json."""
    sections: dict[str, list[tuple[str, Any, str, str]]] = {}
    for key, value in leaves(run.config):
        section = key.partition(".")[0] if "." in key else "run"
        sections.setdefault(section, []).append((key, value, run.source(key), meanings.get(key, "")))
    return sections
