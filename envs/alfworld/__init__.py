"""ALFWorld's text games on an engine that compiles each game once and then only updates sets.

Importing this package loads the standard library only.
"""

from envs.alfworld.engine import CompiledGame, State, compile_game
from envs.alfworld.env import AlfworldEnv
from envs.alfworld.games import (
    FAMILIES,
    OFFICIAL_COUNTS,
    DataError,
    Game,
    load_folder,
    load_games,
    load_jsonl,
    write_jsonl,
)

__all__ = [
    "FAMILIES",
    "OFFICIAL_COUNTS",
    "AlfworldEnv",
    "CompiledGame",
    "DataError",
    "Game",
    "State",
    "compile_game",
    "load_folder",
    "load_games",
    "load_jsonl",
    "write_jsonl",
]
