"""`run.py parity SUBJECT` on the command line; `commands.parity` does the work."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

parity_app = typer.Typer(no_args_is_help=True, help="Compare with reference data: every case must agree.")


@parity_app.command("alfworld")
def parity_alfworld(
    games: Annotated[Path, typer.Option(help="The games, .jsonl or .jsonl.xz.")],
    transcripts: Annotated[Path, typer.Option(help="Transcripts of the reference engine on these games.")],
) -> None:
    """Compare the engine with transcripts of the reference engine, byte for byte."""
    from commands.parity import alfworld

    raise typer.Exit(1 if alfworld(games, transcripts) else 0)


@parity_app.command("webshop")
def parity_webshop(
    golden: Annotated[
        Path,
        typer.Argument(help="Folder of the reference data: golden_rewards.json and the other golden files."),
    ],
    products: Annotated[
        Path | None, typer.Option(help="Folder of the published 1,000 products: their goals are counted too.")
    ] = None,
) -> None:
    """Compare pages, goals and rewards with the published environment's, byte for byte."""
    from commands.parity import webshop

    raise typer.Exit(1 if webshop(golden, products) else 0)


@parity_app.command("credit")
def parity_credit(
    path: Annotated[Path, typer.Argument(help="A folder of <method>.json files, or one such file.")],
) -> None:
    """Compare the credit methods and the policy loss with golden numbers."""
    from commands.parity import credit

    raise typer.Exit(1 if credit(path) else 0)
