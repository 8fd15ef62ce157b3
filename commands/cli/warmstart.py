"""`run.py warmstart` on the command line; `commands.warmstart` does the work."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

warmstart_app = typer.Typer()


@warmstart_app.command()
def warmstart(
    experiment: Annotated[
        str, typer.Option(help="The experiment whose environment, prompts and held-out tasks are used.")
    ] = "alfworld_cpu",
    tokens: Annotated[
        int | None, typer.Option(min=1, help="Tokens to train on (default: as many as the shipped policy).")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of everything random.")] = 0,
    threads: Annotated[int, typer.Option(min=0, help="CPU threads (0: all cores).")] = 0,
    work: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the state after each shard; the command goes on from a state found there."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the finished policy (default: WORK/policy).")
    ] = None,
    shards: Annotated[
        int | None, typer.Option(min=1, help="Stop after this many shards; the same command goes on.")
    ] = None,
) -> None:
    """Make an embedded policy again: supervised learning on an expert's walks (minutes on CPU)."""
    from commands.warmstart import run

    run(experiment, work, out, tokens=tokens, seed=seed, threads=threads, shards=shards)
