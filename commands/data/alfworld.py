"""`run.py data alfworld`: makes games, or looks into them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from configs.schema import EnvConfig
from configs.text import ConfigError
from envs.alfworld import AlfworldEnv, Game, load_games, load_jsonl, write_jsonl
from envs.worlds import open_world


def generate(out: Path, *, split: str, n: int, difficulty: float, seed: int) -> None:
    """Writes `n` generated games of a split as one compact file."""
    if out.suffix not in (".xz", ".jsonl"):
        raise ConfigError(f"--out {out}: give a name that ends in .jsonl.xz or .jsonl")
    started = time.monotonic()
    new = open_world(EnvConfig(difficulty=difficulty, data_seed=seed)).tasks(split, n)
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


def _families(games: Sequence[Game], title: str) -> Table:
    splits = sorted({game.split for game in games})
    counts = Counter((game.family, game.split) for game in games)
    table = Table("family", *splits, title=title, title_justify="left")
    for family in sorted({game.family for game in games}):
        table.add_row(family, *(str(counts[family, split]) for split in splits))
    return table
