"""`run.py data|play|random-agent alfworld`: games without a policy."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from commands import build
from configs.seeds import derive
from configs.text import ConfigError
from envs.alfworld import AlfworldEnv, Game, load_games, load_jsonl, write_jsonl
from eval.result import wilson


def generate(out: Path, *, split: str, n: int, difficulty: float, seed: int) -> None:
    """Writes `n` generated games of a split as one compact file."""
    if out.suffix not in (".xz", ".jsonl"):
        raise ConfigError(f"--out {out}: give a name that ends in .jsonl.xz or .jsonl")
    started = time.monotonic()
    new = build.games("generated", split, n, difficulty=difficulty, seed=seed)
    write_jsonl(out, new)
    seconds = time.monotonic() - started
    Console().print(_families(new, str(out)))
    print(f"wrote {len(new)} {split} games to {out} ({out.stat().st_size / 1e6:.1f} MB) in {seconds:.1f} s")


def inspect(path: Path, *, split: str, show: str | None) -> None:
    """Prints what a data file or folder holds, or the first observation and goal of one game."""
    found = load_jsonl(path) if path.is_file() else load_games(path, split)
    if show is None:
        Console().print(_families(found, str(path)))
        print(f"{len(found)} games. Look at one with --show ID, for example --show {found[0].id}")
        return
    matching = [game for game in found if show in game.id]
    if not matching:
        raise ConfigError(f"no game whose id contains {show!r} among the {len(found)} in {path}")
    game = matching[0]
    observation = AlfworldEnv().reset(game)
    print(f"{game.id} · {game.family} · {game.split}\n\n{observation.text}\n")
    print("\n".join(observation.admissible))


def play(games: Sequence[Game], *, seed: int, max_steps: int) -> None:
    """Lets a human play one game in the terminal."""
    game = games[random.Random(derive(seed, "play")).randrange(len(games))]
    env = AlfworldEnv(max_steps=max_steps)
    observation = env.reset(game)
    console = Console(highlight=False)
    console.print(
        f"[bold]{game.family}[/], at most {max_steps} steps. `?` lists the commands, `quit` ends.\n"
    )
    console.print(observation.text, markup=False)
    for t in range(max_steps):
        while (command := console.input(f"[bold cyan]{t}>[/] ").strip()) == "?":
            console.print("\n".join(observation.admissible), style="dim", markup=False)
        if command == "quit":
            return
        outcome = env.step(command)
        observation = outcome.observation
        console.print(observation.text, markup=False)
        if outcome.success:
            console.print(f"[bold green]Solved in {t + 1} steps.[/]")
            return
    console.print("[bold red]Out of steps.[/]")


def random_agent(games: Sequence[Game], *, seed: int, max_steps: int) -> None:
    """Plays every game with uniformly drawn admissible commands and prints what that achieves."""
    env = AlfworldEnv(max_steps=max_steps)
    successes, steps, started = 0, 0, time.monotonic()
    for game in games:
        rng = random.Random(derive(seed, "random-agent", game.id))
        observation = env.reset(game)
        while True:
            outcome = env.step(rng.choice(observation.admissible))
            observation, steps = outcome.observation, steps + 1
            if outcome.done:
                successes += outcome.success
                break
    low, high = wilson(successes, len(games))
    speed = steps / (time.monotonic() - started)
    print(
        f"random agent: success {successes / len(games):.2f} [{low:.2f},{high:.2f}] on {len(games)} games, "
        f"{steps / len(games):.1f} steps a game, {speed:,.0f} steps/s"
    )


def _families(games: Sequence[Game], title: str) -> Table:
    splits = sorted({game.split for game in games})
    counts = Counter((game.family, game.split) for game in games)
    table = Table("family", *splits, title=title, title_justify="left")
    for family in sorted({game.family for game in games}):
        table.add_row(family, *(str(counts[family, split]) for split in splits))
    return table
