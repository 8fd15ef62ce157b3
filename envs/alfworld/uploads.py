"""Games sent to a server, which has none of its own and keeps the ones used last."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from threading import Lock

from envs.alfworld.game import Game
from envs.base import task_digest
from envs.wire.messages import GameContent

GAMES_KEPT = 8192
"""How many uploaded games a server keeps; 4 kB each, more where they bring a domain."""


class UploadedGames:
    """ALFWorld games, kept from uploads. Safe to use from several threads."""

    def __init__(self, kept: int = GAMES_KEPT) -> None:
        self._kept = kept
        self._games: OrderedDict[str, Game] = OrderedDict()
        self._texts: dict[str, str] = {}
        self._lock = Lock()

    def find(self, name: str, digest: str) -> Game | None:
        """See `TaskBook.find`."""
        with self._lock:
            game = self._games.get(digest)
            if game is not None:
                self._games.move_to_end(digest)
            return game

    def add(self, games: Iterable[GameContent]) -> int:
        """See `TaskBook.add`; the texts are compiled when they are first played."""
        count = 0
        with self._lock:
            for count, body in enumerate(games, start=1):  # noqa: B007 (count is the result)
                # One copy of a domain that thousands of games bring.
                domain, grammar = (
                    None if text is None else self._texts.setdefault(text, text)
                    for text in (body.pddl_domain, body.grammar)
                )
                game = Game(body.id, body.family, body.split, body.goal, body.pddl_problem, domain, grammar)
                self._games[task_digest(game)] = game
                if len(self._games) > self._kept:
                    self._games.popitem(last=False)
            if len(self._texts) > 64:
                self._texts.clear()
        return count
