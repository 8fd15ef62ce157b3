"""`run.py data SUBJECT` on the command line; `commands.data` does the work."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

data_app = typer.Typer(
    no_args_is_help=True, help="Make games or a shop, import published ones, or inspect data."
)

Split = Annotated[str, typer.Option(help="train, valid_seen or valid_unseen (rooms never used in train).")]
Difficulty = Annotated[
    float, typer.Option(min=0.0, max=1.0, help="From 0 (few receptacles) to 1 (full-size rooms).")
]
Seed = Annotated[int, typer.Option(min=0, help="Equal seeds give equal games.")]


@data_app.command(
    "alfworld",
    epilog="Examples: [bold]run.py data alfworld --generate --out data/train.jsonl.xz --n 3000[/] · "
    "[bold]run.py data alfworld --data data/train.jsonl.xz[/]",
)
def data_alfworld(
    generate: Annotated[bool, typer.Option("--generate", help="Make games and write them to --out.")] = False,
    out: Annotated[Path, typer.Option(help="File to write, .jsonl.xz or .jsonl.")] = Path(
        "data/alfworld.jsonl.xz"
    ),
    split: Split = "train",
    n: Annotated[int, typer.Option("--n", min=1, help="Number of games to make.")] = 1000,
    difficulty: Difficulty = 1.0,
    seed: Seed = 0,
    data: Annotated[Path | None, typer.Option(help="Inspect this .jsonl(.xz) file or folder.")] = None,
    show: Annotated[str | None, typer.Option(help="Print the game whose id contains this.")] = None,
) -> None:
    """Write generated games (all solvable, no game in two splits), or inspect existing data."""
    from commands.data import alfworld

    if generate:
        alfworld.generate(out, split=split, n=n, difficulty=difficulty, seed=seed)
    elif data is not None:
        alfworld.inspect(data, split=split, show=show)
    else:
        raise typer.BadParameter("say --generate (to make games) or --data PATH (to look at some)")


@data_app.command(
    "webshop",
    epilog="Examples: [bold]run.py data webshop --generate --out data/webshop[/] · "
    "[bold]run.py data webshop --products items_shuffle.json --attributes items_ins_v2.json "
    "--human items_human_ins.json --out data/published[/] · "
    "[bold]run.py data webshop --data data/webshop --show 'red dress'[/]",
)
def data_webshop(
    generate: Annotated[bool, typer.Option("--generate", help="Make a shop of --n products.")] = False,
    out: Annotated[Path, typer.Option(help="Folder to write; must not exist, or be empty.")] = Path(
        "data/webshop"
    ),
    n: Annotated[int, typer.Option("--n", min=1, help="Number of products to make.")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Equal seeds give equal shops.")] = 0,
    products: Annotated[
        Path | None, typer.Option(help="Import this items_shuffle*.json (all files may be gzipped: .gz).")
    ] = None,
    attributes: Annotated[Path | None, typer.Option(help="With --products: its items_ins*.json.")] = None,
    human: Annotated[Path | None, typer.Option(help="With --products: its items_human_ins.json.")] = None,
    nouns: Annotated[
        Path | None,
        typer.Option(help="With --products: nouns found before (default: found now, with spaCy)."),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="With --products: import only so many records, from the first.")
    ] = None,
    skip_malformed: Annotated[
        bool, typer.Option("--skip-malformed", help="Leave malformed products out instead of failing.")
    ] = False,
    data: Annotated[Path | None, typer.Option(help="Inspect this folder.")] = None,
    show: Annotated[str | None, typer.Option(help="Print this product, or search for these words.")] = None,
    report_splits: Annotated[
        bool,
        typer.Option(
            "--report-splits", help="With --data: print what its test goals share with training, by rule."
        ),
    ] = False,
) -> None:
    """Generate a shop, or import the published files, into a folder that workers share; or inspect one."""
    from commands.data import webshop

    if [generate, products is not None, data is not None].count(True) != 1:
        raise typer.BadParameter("say one of --generate, --products FILE (import), --data FOLDER (look)")
    if report_splits and data is None:
        raise typer.BadParameter("--report-splits looks into a shop: say --data FOLDER")
    if generate:
        webshop.generate(out, n=n, seed=seed)
    elif products is not None:
        webshop.import_files(
            out,
            products=products,
            attributes=attributes,
            human=human,
            nouns=nouns,
            limit=limit,
            skip_malformed=skip_malformed,
        )
    elif report_splits:
        webshop.report_splits(data)
    else:
        webshop.inspect(data, show=show)
