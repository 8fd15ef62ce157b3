"""Checks before a run: `run.py show | check-env | doctor` on the command line."""

from __future__ import annotations

from typing import Annotated

import typer

from commands.cli.types import Experiment, Overrides

checks_app = typer.Typer()


@checks_app.command(
    epilog="Examples: [bold]run.py show alfworld_cpu credit=gigpo credit.gigpo.omega=0.5[/] · "
    "[bold]run.py show alfworld_1.5b --against protocol/verl_agent[/]",
)
def show(
    experiment: Experiment,
    overrides: Overrides = None,
    changed: Annotated[
        bool, typer.Option("--changed", help="Only options that differ from their defaults.")
    ] = False,
    against: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Only what differs from protocol/NAME or another experiment."),
    ] = None,
) -> None:
    """Print every option of an experiment: its value, where that came from, and what it means."""
    from commands.show import run

    run(experiment, overrides or [], changed_only=changed, against=against)


@checks_app.command(
    "check-env",
    epilog="Examples: [bold]run.py check-env docs/examples/storeroom.yaml[/] · "
    "[bold]run.py check-env webshop_cpu -n 2[/]. docs/environments.md",
)
def check_env(
    experiment: Experiment,
    overrides: Overrides = None,
    n: Annotated[int, typer.Option("-n", min=1, help="Tasks played per split.")] = 10,
    split: Annotated[
        list[str] | None, typer.Option(help="Splits (default: those trained and evaluated on).")
    ] = None,
) -> None:
    """Check that an experiment's environment keeps its contract; do so before training on your own."""
    from commands.check_env.command import run

    run(experiment, overrides or [], n, split or [])


@checks_app.command()
def doctor() -> None:
    """Report what is installed, what is missing for what, and how to get it."""
    from configs.doctor import main as report

    raise typer.Exit(report())
