"""`run.py plan` on the command line; `commands.gpu_fit` does the work."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from commands.cli.types import Experiment, Overrides

CARD = 79.15  # `commands.gpu_memory.CARD`, whose import would slow down every command

Card = Literal["a100", "h100"]
gpu_fit_app = typer.Typer()


@gpu_fit_app.command(
    epilog="Examples: [bold]run.py plan alfworld_7b[/] · "
    "[bold]run.py plan alfworld_1.5b --gpus 2 --memory 40 train.offload=true[/] · "
    "[bold]run.py plan alfworld_1.5b --gpus 4 --tune[/]. docs/gpu.md",
)
def plan(
    experiment: Experiment,
    overrides: Overrides = None,
    gpus: Annotated[int | None, typer.Option(min=1, help="GPUs (default: the fewest that suffice).")] = None,
    memory: Annotated[float, typer.Option(min=1.0, help="GiB of each GPU, as PyTorch reports them.")] = CARD,
    steps: Annotated[float | None, typer.Option(help="Mean steps of a trajectory (rollout/steps).")] = None,
    prompt: Annotated[float | None, typer.Option(help="Mean prompt tokens per step.")] = None,
    response: Annotated[float | None, typer.Option(help="Mean tokens per response.")] = None,
    tune: Annotated[
        bool, typer.Option("--tune", help="Search for the fastest setting that fits, and print it.")
    ] = False,
    card: Annotated[Card, typer.Option(help="Whose speed --tune counts with.")] = "h100",
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Write the table into its block of docs/gpu_evidence.md.")
    ] = False,
) -> None:
    """Say how much GPU memory an experiment needs, and whether it fits; exit code 1 if it does not."""
    from commands.gpu_fit import Lengths, run

    lengths = Lengths(steps, prompt, response)
    fits = run(
        experiment,
        overrides or [],
        gpus=gpus,
        memory=memory,
        lengths=lengths,
        markdown=markdown,
        tune=tune,
        card=card,
    )
    raise typer.Exit(0 if fits else 1)
