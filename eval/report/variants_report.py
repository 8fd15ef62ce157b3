"""The report of several runs: seeds averaged with intervals, methods side by side, in one HTML file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from eval.report import variant_figures as figures
from eval.report.alarms import read_alarms
from eval.report.costs import PHASES, phases, tokens
from eval.report.effects import effects
from eval.report.environment import recorded
from eval.report.report_plots import CREDIT_PLOTS, PLOTS, SUCCESS
from eval.report.templating import environment
from eval.runfolder import RunFolder
from eval.variants import Variant, contrasts, differences, variants_of


def write_comparison(run_dirs: Sequence[Path], out: Path) -> Path:
    """Writes the report of several runs.

    Args:
        run_dirs: Run folders.
        out: The file to write.

    Raises:
        EvalError: one is no run folder or broken, or is named twice.
    """
    html = comparison_html([RunFolder.read(run_dir) for run_dir in run_dirs])
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(html, encoding="utf-8")
    return out


def comparison_html(runs: Sequence[RunFolder]) -> str:
    """Returns the report of several runs as one HTML page."""
    compared = variants_of(runs)
    ordered = [run for variant in compared for run in variant.runs]
    families = sorted({family for variant in compared for family in variant.families})
    evaluated = any(run.evals for run in runs)
    logged = any(run.series(SUCCESS)[0] for run in runs)
    return (
        environment()
        .get_template("compare.html.j2")
        .render(
            variants=compared,
            runs=ordered,
            alarms=[(run, alarm) for run in ordered for alarm in read_alarms(run.path)],
            learning=figures.learning_figure(compared, SUCCESS) if logged else None,
            plots=_plots(compared, PLOTS, "panel"),
            families=families,
            family_figure=figures.families_figure(compared, families) if evaluated else None,
            contrasts=contrasts(compared),
            effects=[(variant, found) for variant in compared if (found := effects(variant.records))],
            credit_plots=_plots(compared, CREDIT_PLOTS, "credit"),
            phases=_phases(ordered),
            phase_names=[*PHASES, "other"],
            costs=[(run, phases(run), tokens(run)) for run in ordered],
            differences=differences(compared),
            environments=_environments(ordered),
        )
    )


def _plots(compared: Sequence[Variant], plots: Sequence[Any], prefix: str) -> list[tuple[str, Markup]]:
    """Returns (title, figure) of each metric of the panels that any variant logged, but of no stack."""
    drawn = []
    for i, plot in enumerate(plots):
        for j, (metric, label) in enumerate(plot.names.items()):
            if not plot.stacked and any(variant.curve(metric)[0] for variant in compared):
                title = plot.title if len(plot.names) == 1 else f"{plot.title}: {label}"
                figure = figures.small_figure(compared, metric, title, f"{prefix}{i}-{j}", plot.within)
                drawn.append((title, figure))
    return drawn


def _phases(runs: Sequence[RunFolder]) -> Markup | None:
    times = [phases(run) for run in runs]
    if not any(times):
        return None
    rows = [(phase, [time.get(phase, 0.0) / 60 for time in times]) for phase in (*PHASES, "other")]
    labels = [f"{run.method.upper()} · seed {run.get('seed')}" for run in runs]
    return figures.phases_figure(labels, [(phase, minutes) for phase, minutes in rows if any(minutes)])


def _environments(runs: Sequence[RunFolder]) -> list[tuple[str, list[Any]]]:
    """Returns (what, its value in each run) of where the runs ran; [] if no run says."""
    found = [recorded(run.path) for run in runs]
    keys = dict.fromkeys(key for one in found for key in one)
    return [(key, [one.get(key) for one in found]) for key in keys]
