"""Loads and writes game sets: the official download folder and compact `.jsonl`/`.jsonl.xz` files."""

from __future__ import annotations

import json
import lzma
import os
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, TextIO

from envs.alfworld.game import FAMILIES, GOAL_MARK, DataError, Game

__all__ = [
    "FAMILIES",
    "OFFICIAL_COUNTS",
    "DataError",
    "Game",
    "load_folder",
    "load_games",
    "load_jsonl",
    "write_jsonl",
]

OFFICIAL_COUNTS = {"train": 3553, "valid_seen": 140, "valid_unseen": 134}
_HOW_TO_GET = (
    "To get games: `python run.py data alfworld --generate` writes a seeded set, "
    "`alfworld-download` fetches the official one."
)
_TASK_SENTENCE = re.compile(r'"Your task is to: (?P<goal>(?:[^"\\\n]|\\.)*)\."')


def load_games(path: str | Path, split: str, *, skip_corrupt: bool = False) -> list[Game]:
    """Loads all games of a split, ordered by id, so that it does not matter how they are stored.

    Args:
        path: The official data (its root, `json_2.1.1` or the folder of the split), a folder with
            `<split>.jsonl.xz`, or one `.jsonl`/`.jsonl.xz` file.
        split: Games of another split in the file are left out.
        skip_corrupt: Leave out unreadable games with a warning instead of failing.

    Raises:
        DataError: nothing there, no game in it, or an unreadable game (the message names the file), or two
            games of one id.
    """
    games = sorted(_load(path, split, skip_corrupt), key=lambda game: game.id)
    twice = [game.id for game, other in pairwise(games) if game.id == other.id]
    if twice:
        raise DataError(
            f"{str(path)!r} has {len(twice)} games of split {split!r} more than once, such as {twice[0]!r}: "
            "leave the copies out."
        )
    return games


def _load(path: str | Path, split: str, skip_corrupt: bool) -> list[Game]:
    root = Path(path).expanduser()
    if root.is_file():
        return load_jsonl(root, split, skip_corrupt=skip_corrupt)
    if not root.is_dir():
        raise DataError(f"No game data at {str(root)!r}: no such file or folder. {_HOW_TO_GET}")
    for name in (f"{split}.jsonl.xz", f"{split}.jsonl"):
        if (root / name).is_file():
            return load_jsonl(root / name, split, skip_corrupt=skip_corrupt)
    for folder in (root / "json_2.1.1" / split, root / split):
        if folder.is_dir():
            return load_folder(folder, split, skip_corrupt=skip_corrupt)
    return load_folder(root, split, skip_corrupt=skip_corrupt)


def load_folder(path: str | Path, split: str, *, skip_corrupt: bool = False) -> list[Game]:
    """Loads `<task>/<trial>/game.tw-pddl` files as `alfworld-download` leaves them.

    As the reference does, unsolvable games, folders without a game file and folders named "movable" or
    "Sliced" are passed over. A set of another size than the official one is reported as a warning.
    """
    root = Path(path).expanduser()
    if not root.is_dir():
        raise DataError(f"No game folder at {str(root)!r}. {_HOW_TO_GET}")
    readers = ((folder, lambda f=folder: _read_folder(f, split)) for folder in _game_folders(root))
    games = _collect(readers, skip_corrupt)
    if not games:
        raise DataError(f"0 games of split {split!r} under {str(root)!r}. {_HOW_TO_GET}")
    expected = OFFICIAL_COUNTS.get(split)
    if expected is not None and len(games) != expected:
        warnings.warn(
            f"{str(root)!r} has {len(games)} solvable games; the official {split} split has {expected}. "
            "Figures on it do not compare with published ones.",
            stacklevel=2,
        )
    return games


def _game_folders(root: Path) -> Iterator[Path]:
    for folder, subfolders, files in os.walk(root):
        subfolders.sort()
        left_out = re.search("movable|Sliced", os.path.relpath(folder, root))
        if "game.tw-pddl" in files and "traj_data.json" in files and not left_out:
            yield Path(folder)


def _read_folder(folder: Path, split: str) -> Game | None:
    """Reads one trial folder; None if the game is not solvable or of no text family."""
    body = json.loads((folder / "game.tw-pddl").read_text())
    if not body.get("solvable"):
        return None
    meta = json.loads((folder / "traj_data.json").read_text())
    if meta["task_type"] not in FAMILIES:
        return None
    name = f"{folder.parent.name}/{folder.name}"
    return _game(f"{split}/{name}", split, meta["task_type"], None, body, meta.get("pddl_params", {}))


def load_jsonl(path: str | Path, split: str | None = None, *, skip_corrupt: bool = False) -> list[Game]:
    """Loads a compact set, one JSON game per line (`.jsonl`, or `.jsonl.xz`).

    Keys of each line: `split`, `task_type`, `goal`, `pddl_params`, `id` (or `task` and `trial`), and either
    `pddl_problem` or `game` (a whole game file with its own domain and grammar).

    Args:
        path: The file.
        split: Keep the games of this split; None keeps all.
        skip_corrupt: Leave out unreadable lines with a warning instead of failing.
    """
    file = Path(path).expanduser()
    if not file.is_file():
        raise DataError(f"No game set at {str(file)!r}. {_HOW_TO_GET}")
    readers = (
        (f"{file}, line {n}", lambda row=row: _read_row(row, split)) for n, row in _lines(file, skip_corrupt)
    )
    games = _collect(readers, skip_corrupt)
    if not games:
        raise DataError(f"0 games{f' of split {split!r}' if split else ''} in {str(file)!r}. {_HOW_TO_GET}")
    return games


def _open(path: Path, mode: str) -> TextIO:
    return (
        lzma.open(path, mode, encoding="utf-8") if path.suffix == ".xz" else path.open(mode, encoding="utf-8")
    )


def _lines(path: Path, skip_corrupt: bool) -> Iterator[tuple[int, str]]:
    number = 0
    try:
        with _open(path, "rt") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield number, line
    except (lzma.LZMAError, EOFError, UnicodeDecodeError) as error:
        message = f"{str(path)!r} is damaged after line {number}: {error}. Get the file again."
        if not skip_corrupt:
            raise DataError(message) from error
        warnings.warn(f"{message} Its readable games are used.", stacklevel=2)


def _read_row(line: str, split: str | None) -> Game | None:
    row = json.loads(line)
    if split is not None and row["split"] != split:
        return None
    name = row["id"] if "id" in row else f"{row['split']}/{row['task']}/{row['trial']}"
    body = row["game"] if "game" in row else {"pddl_problem": row["pddl_problem"]}
    return _game(name, row["split"], row["task_type"], row.get("goal"), body, row.get("pddl_params", {}))


_shared_texts: dict[str, str] = {}


def _shared(text: str | None) -> str | None:
    """Returns one copy of equal texts: a split brings the same domain thousands of times."""
    return None if text is None else _shared_texts.setdefault(text, text)


def _game(name: str, split: str, family: str, goal: str | None, body: Mapping, params: Mapping) -> Game:
    """Builds a game; takes the sentence out of a grammar it was written into, so that grammars are shared."""
    grammar = body.get("grammar")
    if grammar is not None:
        sentence = _TASK_SENTENCE.search(grammar)
        if sentence is None:
            raise ValueError('its grammar has no "Your task is to: …" sentence')
        if sentence["goal"] != GOAL_MARK:
            start, end = sentence.span("goal")
            goal, grammar = (
                json.loads(f'"{sentence["goal"]}"'),
                f"{grammar[:start]}{GOAL_MARK}{grammar[end:]}",
            )
    if not goal:
        raise ValueError("it has no task sentence")
    domain = _shared(body.get("pddl_domain"))
    return Game(name, family, split, goal, body["pddl_problem"], domain, _shared(grammar), params)


def _collect(readers: Iterable[tuple[object, Callable[[], Game | None]]], skip_corrupt: bool) -> list[Game]:
    games: list[Game] = []
    for place, read in readers:
        try:
            game = read()
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            what = f"no key {error}" if isinstance(error, KeyError) else str(error)
            message = f"Unreadable game at {place}: {what}."
            if not skip_corrupt:
                raise DataError(
                    f"{message} Get the file again, or pass skip_corrupt to leave it out."
                ) from error
            warnings.warn(f"{message} Left out.", stacklevel=3)
            continue
        if game is not None:
            games.append(game)
    return games


def write_jsonl(path: str | Path, games: Iterable[Game]) -> int:
    """Writes games in the format `load_jsonl` reads; returns how many."""
    file = Path(path).expanduser()
    file.parent.mkdir(parents=True, exist_ok=True)
    count = 0
    with _open(file, "wt") as out:
        for count, game in enumerate(games, start=1):  # noqa: B007 (count is the result)
            row: dict[str, Any] = {
                "id": game.id,
                "split": game.split,
                "task_type": game.family,
                "pddl_params": dict(game.pddl_params),
                "goal": game.goal,
            }
            problem = {"pddl_problem": game.pddl_problem}
            if game.pddl_domain is None and game.grammar is None:
                row |= problem
            else:
                row["game"] = {"pddl_domain": game.pddl_domain, "grammar": game.grammar, **problem}
            out.write(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n")
    return count
