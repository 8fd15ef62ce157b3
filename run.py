"""The command line. `python run.py --help` teaches it; `commands/` does the work."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import Annotated

import typer

from commands.cli.experiments import experiments_app
from commands.cli.gpu_fit import plan_app
from commands.cli.serve import serve_app
from commands.cli.subjects import SUBCOMMANDS
from commands.cli.types import Experiment, MaybeExperiment, Overrides
from configs.errors import UserError

# Before torch is imported: threads that wait must sleep, or a second process on the same cores slows both
# (two threads on a shared machine: 93 tokens per CPU second spinning, 1,900 sleeping).
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

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

for name, commands in SUBCOMMANDS.items():
    app.add_typer(commands, name=name)
app.add_typer(experiments_app)
app.add_typer(plan_app)
app.add_typer(serve_app)


@app.command(
    epilog="Examples: [bold]run.py train alfworld_cpu[/] · "
    "[bold]run.py train alfworld_cpu credit=gigpo seed=1[/] · "
    "[bold]run.py train --resume runs/ID train.updates=80[/]",
)
def train(
    experiment: MaybeExperiment = None,
    overrides: Overrides = None,
    resume: Annotated[Path | None, typer.Option(metavar="RUN", help="Go on with this run's folder.")] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of the new run (default: runs/ID).")
    ] = None,
    nproc: Annotated[
        int | None,
        typer.Option(
            min=1, help="Processes that train, one a GPU (train.engine=deepspeed); else CPU threads."
        ),
    ] = None,
) -> None:
    """Train an experiment; the last line is its result, the rest is in runs/ID/."""
    from commands.train import run

    run(*_arguments(experiment, overrides), resume, out, nproc)


@app.command(
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
        bool, typer.Option("--best", help="… its best one instead (checkpoint.keep_best).")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="Also write the result, task by task, and how it came about, as JSON."),
    ] = None,
) -> None:
    """Evaluate a policy on a whole split: success per family, with intervals."""
    from commands.evaluate import run as work

    work(*_arguments(experiment, overrides), run, out, best=best)


@app.command(
    epilog="Examples: [bold]run.py report runs/ID[/] · [bold]run.py report runs/A runs/B runs/C[/]",
)
def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN…", help="Folders of runs.")],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Default: RUN/report.html; of several runs: runs/report.html."),
    ] = None,
) -> None:
    """Write a run's report again, or one over several runs: seeds averaged, methods side by side."""
    from commands.evaluate import report as work

    work(runs, out)


@app.command(
    epilog="Examples: [bold]run.py view[/] · [bold]run.py view runs/ID --port 9000 --open[/]",
)
def view(
    folder: Annotated[Path, typer.Argument(metavar="[RUNS]", help="Folder of runs, or one run.")] = Path(
        "runs"
    ),
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Default: 8765, or any that is free.")
    ] = None,
    browser: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
) -> None:
    """Look at runs in the browser: progress, comparisons, every step with its credit (this machine only)."""
    from commands.view import run

    run(folder, port, browser)


@app.command(
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
    show: Annotated[int, typer.Option(min=1, help="Trajectories on the page, the most disputed ones.")] = 200,
) -> None:
    """Compare credit methods on recorded trajectories, step by step, without a model."""
    from commands.replay import run as work

    work(*_arguments(run, overrides), file=file, credit=credit, update=update, out=out, show=show)


@app.command(
    epilog="Examples: [bold]run.py show alfworld_cpu credit=gigpo credit.gigpo.omega=0.5[/] · "
    "[bold]run.py show alfworld_1.5b --against protocol/verl_agent[/]",
)
def show(
    experiment: Experiment,
    overrides: Overrides = None,
    changed: Annotated[bool, typer.Option("--changed", help="Only what is not a default.")] = False,
    against: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Only what differs from protocol/NAME or another experiment."),
    ] = None,
) -> None:
    """Print every option of an experiment: its value, where that came from, and what it means."""
    from commands.show import run

    run(experiment, overrides or [], changed_only=changed, against=against)


@app.command(
    "check-env",
    epilog="Examples: [bold]run.py check-env docs/examples/storeroom.yaml[/] · "
    "[bold]run.py check-env webshop_cpu -n 2[/]. docs/environments.md",
)
def check_env(
    experiment: Experiment,
    overrides: Overrides = None,
    n: Annotated[int, typer.Option("-n", min=1, help="Tasks of each split.")] = 10,
    split: Annotated[
        list[str] | None, typer.Option(help="Splits (default: those trained and evaluated on).")
    ] = None,
) -> None:
    """Hold an experiment's environment against its contract: do this before training on one of your own."""
    from commands.check_env.command import run

    run(experiment, overrides or [], n, split or [])


@app.command()
def doctor() -> None:
    """Report what is installed, what is missing for what, and how to get it."""
    from configs.doctor import main as report

    raise typer.Exit(report())


@app.command()
def warmstart(
    experiment: Annotated[
        str, typer.Option(help="Its environment, prompts and held-out tasks are used.")
    ] = "alfworld_cpu",
    tokens: Annotated[
        int | None, typer.Option(min=1, help="Tokens to train on (default: as shipped).")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seeds everything.")] = 0,
    threads: Annotated[int, typer.Option(min=0, help="CPU threads (0: all cores).")] = 0,
    work: Annotated[
        Path | None, typer.Option(help="State after each shard; found there, it goes on.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the finished policy (default: WORK/policy).")
    ] = None,
    shards: Annotated[
        int | None, typer.Option(min=1, help="Stop after this many; the same command goes on.")
    ] = None,
) -> None:
    """Make an embedded policy again: supervised learning on an expert's walks (minutes on CPU)."""
    from commands.warmstart import run

    run(experiment, work, out, tokens=tokens, seed=seed, threads=threads, shards=shards)


def main() -> None:
    """Runs the command line; an error of the user's making is one red message and exit code 2."""
    warnings.formatwarning = lambda message, *_: f"warning: {message}\n"
    try:
        app()
    except UserError as error:
        from rich.console import Console

        Console(stderr=True, highlight=False).print(
            f"error: {error}", style="red", markup=False, soft_wrap=True
        )
        sys.exit(2)


def _arguments(experiment: str | None, overrides: list[str] | None) -> tuple[str | None, list[str]]:
    """Without an experiment (`train --resume RUN key=value`) the first override sits in its place."""
    if experiment is not None and "=" in experiment:
        return None, [experiment, *(overrides or [])]
    return experiment, overrides or []


if __name__ == "__main__":
    main()
