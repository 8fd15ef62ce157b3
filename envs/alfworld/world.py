"""ALFWorld as a world: games that are generated, or from files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from envs.alfworld.demonstrate import AlfworldLessons
from envs.alfworld.env import AlfworldEnv
from envs.alfworld.games import FAMILIES, OFFICIAL_COUNTS, load_games
from envs.alfworld.generate import generate_games
from envs.alfworld.uploads import UploadedGames
from envs.demonstration import Curriculum
from envs.subset import Roster
from envs.world import GENERATED, Section, World

if TYPE_CHECKING:
    from envs.wire.description import Description


class Alfworld(World):
    """ALFWorld games: generated, or from files."""

    noun = "games"
    splits = tuple(OFFICIAL_COUNTS)

    def roster(self, split: str, n: int | None = None) -> Roster:
        """See `World.roster`; `n` games are generated, by default as many as there are official ones.

        Each is drawn in the official proportions of the families, so the first n are a fair sample already,
        and more start with the same ones.
        """
        env = self.env
        if env.data != GENERATED:
            return Roster.of(load_games(env.data, split, skip_corrupt=env.skip_corrupt))
        self.check_split(split)
        wanted = n or OFFICIAL_COUNTS[split]
        return Roster.of(generate_games(split, wanted, seed=env.data_seed, difficulty=env.difficulty))

    def families(self, roster: Roster) -> tuple[str, ...]:
        """See `World.families`."""
        return FAMILIES

    def source(self) -> Mapping[str, Any]:
        """See `World.source`."""
        env = self.env
        made = {"data_seed": env.data_seed, "difficulty": env.difficulty} if env.data == GENERATED else {}
        return {"data": env.data} | made

    def make_env(self) -> AlfworldEnv:
        """See `World.make_env`."""
        return AlfworldEnv(max_steps=self.env.max_steps, anchor=self.env.anchor)

    def task_book(self) -> UploadedGames:
        """See `World.task_book`: a server is sent the games."""
        return UploadedGames()

    @classmethod
    def description(cls, env: Section) -> Description:
        """See `World.description`; games travel whole, so where they come from does not matter."""
        from envs.wire.description import describe

        return describe("alfworld", {"max_steps": env.max_steps, "anchor": env.anchor})

    @classmethod
    def lessons(cls) -> Curriculum:
        """See `World.lessons`."""
        return Curriculum(AlfworldLessons(), tokens=8_000_000)
