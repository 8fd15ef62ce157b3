"""`run.py train` on the command line; `commands.train` does the work."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from commands.cli.types import MaybeExperiment, Overrides, arguments

training_app = typer.Typer()


@training_app.command(
    epilog="Examples: [bold]run.py train alfworld_cpu[/] · "
    "[bold]run.py train alfworld_cpu credit=gigpo seed=1[/] · "
    "[bold]run.py train --resume runs/ID train.updates=80[/]",
)
def train(
    experiment: MaybeExperiment = None,
    overrides: Overrides = None,
    resume: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Go on with the run in this folder.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of the new run (default: runs/ID).")
    ] = None,
    nproc: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Processes that share the work: one per GPU, or per CPU core (default: see option "
            "`processes`).",
        ),
    ] = None,
) -> None:
    """Train an experiment; the last line is its result, the rest is in runs/ID/."""
    from commands.train import run

    run(*arguments(experiment, overrides), resume, out, nproc)
