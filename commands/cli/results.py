"""Results of runs: `run.py eval | report | view | replay` on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from commands.cli.types import MaybeExperiment, Overrides, arguments

results_app = typer.Typer()


@results_app.command(
    "eval",
    epilog="Examples: [bold]run.py eval alfworld_cpu[/] · "
    "[bold]run.py eval --run runs/ID eval.tasks=100[/] · "
    "[bold]run.py eval --run runs/ID --best eval.split=valid_unseen eval.samples=4[/]",
)
def evaluate(
    experiment: MaybeExperiment = None,
    overrides: Overrides = None,
    run: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Evaluate this run's newest checkpoint.")
    ] = None,
    best: Annotated[
        bool,
        typer.Option(
            "--best", help="With --run: evaluate its best checkpoint instead (checkpoint.keep_best)."
        ),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Also write the result per task, with the policy and options it came from, as JSON."
        ),
    ] = None,
) -> None:
    """Evaluate a policy on a whole split: success per family, with intervals."""
    from commands.evaluate import run as work

    work(*arguments(experiment, overrides), run, out, best=best)


@results_app.command(
    epilog="Examples: [bold]run.py report runs/ID[/] · [bold]run.py report runs/A runs/B runs/C[/]",
)
def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN…", help="Folders of runs.")],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Default: RUN/report.html; for several runs: runs/report.html."),
    ] = None,
) -> None:
    """Write the report of a run again, or one on several runs: seeds averaged, methods side by side."""
    from commands.evaluate import report as work

    work(runs, out)


@results_app.command(
    epilog="Examples: [bold]run.py view[/] · [bold]run.py view runs/ID --port 9000 --open[/]",
)
def view(
    folder: Annotated[Path, typer.Argument(metavar="[RUNS]", help="Folder of runs, or one run.")] = Path(
        "runs"
    ),
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Default: 8765, or any free port.")
    ] = None,
    browser: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
) -> None:
    """Look at runs in the browser: progress, comparisons, every step with its credit (this machine only)."""
    from commands.view import run

    run(folder, port, browser)


@results_app.command(
    epilog="Examples: [bold]run.py replay runs/ID --credit scpo,gigpo[/] · "
    "[bold]run.py replay runs/ID --credit scpo --update 5-12 credit.scpo.theta=0.8[/] · "
    "[bold]run.py replay --from FILE.parquet --credit gigpo[/]",
)
def replay(
    run: Annotated[str | None, typer.Argument(metavar="[RUN]", help="A run's folder.")] = None,
    overrides: Overrides = None,
    file: Annotated[
        Path | None,
        typer.Option("--from", metavar="FILE", help="Trajectories made elsewhere (docs/replay.md)."),
    ] = None,
    credit: Annotated[
        str | None, typer.Option(metavar="NAME,…", help="Methods (default: the run's own).")
    ] = None,
    update: Annotated[
        str | None, typer.Option(metavar="N[-M]", help="Only these updates (default: all recorded).")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of the results (default: RUN/replay).")
    ] = None,
    show: Annotated[
        int, typer.Option(min=1, help="Trajectories on the page: those the methods disagree on most.")
    ] = 200,
) -> None:
    """Compare credit methods on recorded trajectories, step by step, without a model."""
    from commands.replay import run as work

    work(*arguments(run, overrides), file=file, credit=credit, update=update, out=out, show=show)
