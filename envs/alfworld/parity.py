"""Compares the engine with transcripts of the reference engine, byte for byte."""

from __future__ import annotations

import json
import lzma
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from envs.alfworld.engine import compile_game
from envs.alfworld.games import DataError, Game, load_jsonl
from envs.base import EnvError


@dataclass(frozen=True)
class ParityResult:
    """Outcome of a comparison.

    Attributes:
        passed: Games all of whose walks agree in every step.
        failed: The other games.
        steps: Steps compared, first observations included.
        failures: What differs first in each failed game, readable.
    """

    passed: int
    failed: int
    steps: int
    failures: tuple[str, ...]


def run_parity(
    games_path: str | Path, transcripts_path: str | Path, progress: bool = True, every: int = 1
) -> ParityResult:
    """Plays the commands of every transcript and compares observation, admissible commands, won, score, done.

    Args:
        games_path: A compact set (see `load_jsonl`) that holds the games of the transcripts.
        transcripts_path: `.jsonl` or `.jsonl.xz`, one game per line: `split`, `task`, `trial`, `walks`, each
            with `kind` and `steps` of `a`, `obs`, `adm`, `won`, `score`, `done` (`a` is null in the first).
        progress: Show a counter on standard error.
        every: Compare each n-th game only, for a quick look.

    Raises:
        DataError: a file is missing or unreadable, or has no transcript.
    """
    games = {game.id: game for game in load_jsonl(games_path)}
    failures: list[str] = []
    count = steps = 0
    rows = islice(_transcripts(Path(transcripts_path)), 0, None, every)
    for count, row in enumerate(rows, start=1):
        name = f"{row['split']}/{row['task']}/{row['trial']}"
        game = games.get(name)
        difference = f"game {name!r} is not in {str(games_path)!r}" if game is None else _compare(game, row)
        steps += sum(len(walk["steps"]) for walk in row["walks"])
        if difference is not None:
            failures.append(difference)
        if progress:
            print(f"\r{count} games, {len(failures)} failed", end="", file=sys.stderr, flush=True)
    if progress:
        print(file=sys.stderr)
    if count == 0:
        raise DataError(f"0 transcripts in {str(transcripts_path)!r}.")
    return ParityResult(count - len(failures), len(failures), steps, tuple(failures))


def _transcripts(path: Path) -> Iterator[Mapping[str, Any]]:
    if not path.is_file():
        raise DataError(f"No transcripts at {str(path)!r}.")
    opener = lzma.open if path.suffix == ".xz" else open
    try:
        with opener(path, "rt", encoding="utf-8") as file:
            for line in file:
                yield json.loads(line)
    except (lzma.LZMAError, EOFError, ValueError) as error:
        raise DataError(f"Transcripts {str(path)!r} are damaged: {error}.") from error


def _compare(game: Game, row: Mapping[str, Any]) -> str | None:
    """Returns the first difference in a game, or None."""
    try:
        compiled = compile_game(game)
    except EnvError as error:
        return f"{game.id}: does not compile: {error}"
    for walk in row["walks"]:
        state = compiled.initial
        for t, expected in enumerate(walk["steps"]):
            text = compiled.intro
            if expected["a"] is not None:
                state, text = compiled.step(state, expected["a"])
            won = compiled.won(state)
            got = {"obs": text, "adm": list(compiled.admissible(state)), "won": won}
            if "score" in expected:
                got |= {"score": int(won), "done": won}
            for key, value in got.items():
                if value != expected[key]:
                    where = f"{game.id}, {walk['kind']} walk, step {t}, after {expected['a']!r}"
                    return f"{where}: {_difference(key, expected[key], value)}"
    return None


def _difference(key: str, expected: Any, got: Any) -> str:
    if key != "adm":
        return f"{key}\n  expected {expected!r}\n  got      {got!r}"
    missing = [command for command in expected if command not in got]
    extra = [command for command in got if command not in expected]
    return f"admissible commands\n  missing {missing}\n  extra   {extra}"
