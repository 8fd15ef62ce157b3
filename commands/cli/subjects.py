"""The commands that have a subject of their own: `run.py parity | data | play | random-agent SUBJECT`.

Declared here, as the other commands are in run.py; the modules they call do the work.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from configs.schema import EnvConfig

parity_app = typer.Typer(no_args_is_help=True, help="Compare with reference data: every case must agree.")
data_app = typer.Typer(
    no_args_is_help=True, help="Make games or a shop, import published ones, or look into data."
)
play_app = typer.Typer(no_args_is_help=True, help="Play a game in the terminal.")
random_app = typer.Typer(
    no_args_is_help=True, help="What acting at random achieves: the floor of every table."
)

SUBCOMMANDS = {"parity": parity_app, "data": data_app, "play": play_app, "random-agent": random_app}
"""Name on the command line to its commands."""


@parity_app.command("alfworld")
def parity_alfworld(
    games: Annotated[Path, typer.Option(help="The games, .jsonl or .jsonl.xz.")],
    transcripts: Annotated[Path, typer.Option(help="Walks of the reference engine on them.")],
) -> None:
    """Hold the engine against transcripts of the reference engine, byte for byte."""
    from commands.parity import alfworld

    raise typer.Exit(1 if alfworld(games, transcripts) else 0)


@parity_app.command("webshop")
def parity_webshop(
    golden: Annotated[Path, typer.Argument(help="Folder of golden_rewards.json and the like.")],
    products: Annotated[
        Path | None, typer.Option(help="Folder of the published 1,000 products: their goals are counted too.")
    ] = None,
) -> None:
    """Hold pages, goals and rewards against the published environment's, byte for byte."""
    from commands.parity import webshop

    raise typer.Exit(1 if webshop(golden, products) else 0)


@parity_app.command("credit")
def parity_credit(
    path: Annotated[Path, typer.Argument(help="A folder of <method>.json files, or one such file.")],
) -> None:
    """Hold the credit methods and the policy loss against golden numbers."""
    from commands.parity import credit

    raise typer.Exit(1 if credit(path) else 0)


DataPath = Annotated[
    str, typer.Option("--data", help="`generated`, a .jsonl(.xz) file, or a folder of games.")
]
Split = Annotated[str, typer.Option(help="train, valid_seen or valid_unseen (rooms never used in train).")]
Difficulty = Annotated[float, typer.Option(min=0.0, max=1.0, help="0 few receptacles … 1 full-size rooms.")]
Seed = Annotated[int, typer.Option(min=0, help="The same seed gives the same games.")]
MaxSteps = Annotated[int, typer.Option(min=1, help="Step limit of a trajectory.")]


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
    data: Annotated[Path | None, typer.Option(help="Look into this .jsonl(.xz) file or folder.")] = None,
    show: Annotated[str | None, typer.Option(help="Print the game whose id contains this.")] = None,
) -> None:
    """Write generated games (every one solvable, splits disjoint), or look into existing data."""
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
    seed: Annotated[int, typer.Option(min=0, help="The same seed makes the same shop.")] = 0,
    products: Annotated[
        Path | None, typer.Option(help="Import this items_shuffle*.json (each file may be packed: .gz).")
    ] = None,
    attributes: Annotated[Path | None, typer.Option(help="… with this items_ins*.json.")] = None,
    human: Annotated[Path | None, typer.Option(help="… and this items_human_ins.json.")] = None,
    nouns: Annotated[
        Path | None, typer.Option(help="… and nouns found before (default: found now, with spaCy).")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Import only the first records.")] = None,
    skip_malformed: Annotated[
        bool, typer.Option("--skip-malformed", help="Leave malformed products out instead of failing.")
    ] = False,
    data: Annotated[Path | None, typer.Option(help="Look into this folder.")] = None,
    show: Annotated[str | None, typer.Option(help="Print this product, or search for these words.")] = None,
    report_splits: Annotated[
        bool, typer.Option("--report-splits", help="Print what its test goals share with training, by rule.")
    ] = False,
) -> None:
    """Generate a shop, or import the published files, into a folder workers share; or look into one."""
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


Rule = Annotated[str, typer.Option(help="How goals are split: by_product, papers or upstream.")]
Goals = Annotated[str, typer.Option(help="synthetic or human.")]
Products = Annotated[int, typer.Option(min=1, help="Generated shop: its products.")]
ShopData = Annotated[str, typer.Option("--data", help="`generated`, or a folder of `run.py data webshop`.")]
ShopSplit = Annotated[str, typer.Option(help="train, eval or test.")]
Tasks = Annotated[int, typer.Option("--n", min=1, help="Number of tasks.")]


@play_app.command("alfworld")
def play_alfworld(
    data: DataPath = "generated",
    split: Split = "valid_unseen",
    difficulty: Difficulty = 0.3,
    seed: Seed = 0,
    max_steps: MaxSteps = 50,
) -> None:
    """Play one game yourself."""
    from commands.play import play
    from configs.schema import EnvConfig

    env = EnvConfig(data=data, difficulty=difficulty, data_seed=seed, max_steps=max_steps)
    play(env, split, seed=seed, among=20)


@play_app.command("webshop")
def play_webshop(
    data: ShopData = "generated",
    split: ShopSplit = "test",
    goals: Goals = "synthetic",
    rule: Rule = "by_product",
    products: Products = 1000,
    seed: Seed = 0,
    max_steps: MaxSteps = 15,
) -> None:
    """Go shopping yourself."""
    from commands.play import play

    play(_shop(data, goals, rule, products, seed, max_steps), split, seed=seed)


@random_app.command("alfworld")
def random_agent_alfworld(
    data: DataPath = "generated",
    split: Split = "valid_unseen",
    n: Tasks = 400,
    difficulty: Difficulty = 0.3,
    seed: Seed = 0,
    max_steps: MaxSteps = 30,
) -> None:
    """Draw every command uniformly from the admissible ones."""
    from commands.play import random_agent
    from configs.schema import EnvConfig

    env = EnvConfig(data=data, difficulty=difficulty, data_seed=seed, max_steps=max_steps)
    random_agent(env, split, n, seed=seed)


@random_app.command("webshop")
def random_agent_webshop(
    data: ShopData = "generated",
    split: ShopSplit = "test",
    goals: Goals = "synthetic",
    rule: Rule = "by_product",
    products: Products = 1000,
    n: Tasks = 400,
    seed: Seed = 0,
    max_steps: MaxSteps = 15,
) -> None:
    """Draw every action uniformly from the admissible ones; a search is for the instruction's words."""
    from commands.play import random_agent

    random_agent(_shop(data, goals, rule, products, seed, max_steps), split, n, seed=seed)


def _shop(data: str, goals: str, rule: str, products: int, seed: int, max_steps: int) -> EnvConfig:
    from pydantic import ValidationError

    from configs.schema import EnvConfig

    try:
        shop = {"goals": goals, "rule": rule, "products": products}
        return EnvConfig(name="webshop", data=data, data_seed=seed, max_steps=max_steps, options=shop)
    except ValidationError as error:
        first = error.errors()[0]
        raise typer.BadParameter(f"--{first['loc'][0]}: {first['msg']}, got {first['input']!r}") from error
