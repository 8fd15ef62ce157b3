"""Puts the command line together; each other file of this folder declares the commands of one subject."""

from __future__ import annotations

import sys
import warnings

import typer

from commands.cli.checks import checks_app
from commands.cli.data import data_app
from commands.cli.experiments import experiments_app
from commands.cli.gpu_fit import gpu_fit_app
from commands.cli.parity import parity_app
from commands.cli.play import play_app, random_app
from commands.cli.results import results_app
from commands.cli.serve import serve_app
from commands.cli.training import training_app
from commands.cli.warmstart import warmstart_app
from commands.launched import complain, end_with_launcher, print_mistake
from configs.errors import UserError

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Trains LLM agents on long tasks by group rollouts, with credit for each step.",
    epilog="Start with [bold]python run.py train alfworld_cpu[/]. Every option can be overridden: "
    "[bold]key.path=value[/]; [bold]run.py show alfworld_cpu[/] lists them all.",
)
# In the order of --help.
for part in (training_app, results_app, checks_app, warmstart_app):
    app.add_typer(part)
app.add_typer(parity_app, name="parity")
app.add_typer(data_app, name="data")
app.add_typer(play_app, name="play")
app.add_typer(random_app, name="random-agent")
for part in (experiments_app, gpu_fit_app, serve_app):
    app.add_typer(part)


def main() -> None:
    """Runs the command line; a `UserError` becomes one red message and exit code 2."""
    end_with_launcher()
    warnings.formatwarning = lambda message, *_: f"warning: {message}\n"
    try:
        app()
    except UserError as error:
        text = f"error: {error}"
        if not complain(text):  # several processes make the same mistake: their launcher says it once
            print_mistake(text)
        sys.exit(2)
