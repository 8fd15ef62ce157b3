"""`run.py play | random-agent SUBJECT` on the command line; `commands.play` does the work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from commands.cli.data import Difficulty, Seed, Split

if TYPE_CHECKING:
    from configs.schema import EnvConfig

play_app = typer.Typer(no_args_is_help=True, help="Play a game in the terminal.")
random_app = typer.Typer(
    no_args_is_help=True, help="Measure what random actions achieve, as a lower bound for comparisons."
)

DataPath = Annotated[
    str, typer.Option("--data", help="`generated`, a .jsonl(.xz) file, or a folder of games.")
]
MaxSteps = Annotated[int, typer.Option(min=1, help="Limit of steps per trajectory.")]
Rule = Annotated[str, typer.Option(help="How goals are split: by_product, papers or upstream.")]
Goals = Annotated[str, typer.Option(help="synthetic or human.")]
Products = Annotated[int, typer.Option(min=1, help="Number of products in a generated shop.")]
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

    play(_games(data, difficulty, seed, max_steps), split, seed=seed, among=20)


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

    random_agent(_games(data, difficulty, seed, max_steps), split, n, seed=seed)


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


def _games(data: str, difficulty: float, seed: int, max_steps: int) -> EnvConfig:
    from configs.schema import EnvConfig

    return EnvConfig(data=data, difficulty=difficulty, data_seed=seed, max_steps=max_steps)


def _shop(data: str, goals: str, rule: str, products: int, seed: int, max_steps: int) -> EnvConfig:
    from pydantic import ValidationError

    from configs.schema import EnvConfig

    try:
        shop = {"goals": goals, "rule": rule, "products": products}
        return EnvConfig(name="webshop", data=data, data_seed=seed, max_steps=max_steps, options=shop)
    except ValidationError as error:
        first = error.errors()[0]
        raise typer.BadParameter(f"--{first['loc'][0]}: {first['msg']}, got {first['input']!r}") from error
