"""What a run plays in: its tasks and environments, as the section `env` of a configuration spells them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from commands.own_world import OwnWorld, check_split
from configs.schema import EnvConfig
from envs.alfworld import OFFICIAL_COUNTS, AlfworldEnv, Game, load_games
from envs.alfworld.generate import generate_games
from envs.base import Env, Task
from envs.webshop import Catalogue, Shop, WebshopEnv, open_shop
from envs.webshop.generate import generated_catalogue
from envs.webshop.goals import Goal
from envs.webshop.splits import SPLITS

GENERATED = "generated"


class World(Protocol):
    """Tasks and environments of one kind; what they share is loaded once."""

    def tasks(self, split: str, n: int | None = None) -> Sequence[Task]:
        """Returns the first `n` tasks of a split (None: all), in the same order every time.

        Raises:
            ConfigError: There is no such split.
            EnvError: The data is missing or broken, or the split is empty.
        """

    def make_env(self) -> Env:
        """Makes one environment instance."""


def open_world(env: EnvConfig) -> World:
    """Opens the world that a configuration names.

    Raises:
        ConfigError: It is one of the user's own, and cannot be found or used.
    """
    return WORLDS[env.name](env) if env.name in WORLDS else OwnWorld(env)


class Alfworld:
    """ALFWorld games: generated, or from files."""

    def __init__(self, env: EnvConfig) -> None:
        self._env = env

    def tasks(self, split: str, n: int | None = None) -> list[Game]:
        """See `World.tasks`; of generated games, all are as many as the official ones."""
        env = self._env
        if env.data != GENERATED:
            return load_games(env.data, split, skip_corrupt=env.skip_corrupt, limit=n)
        check_split(split, tuple(OFFICIAL_COUNTS), "generated games")
        return generate_games(
            split, n or OFFICIAL_COUNTS[split], seed=env.data_seed, difficulty=env.difficulty
        )

    def make_env(self) -> AlfworldEnv:
        """See `World.make_env`."""
        return AlfworldEnv(max_steps=self._env.max_steps, anchor=self._env.anchor)


class Webshop:
    """A shop, generated or from a folder, and its goals."""

    def __init__(self, env: EnvConfig) -> None:
        self._env = env
        options = env.webshop
        self.shop: Shop = open_shop(
            catalogue(env.data, options.products, env.data_seed, env.difficulty),
            kind=options.goals,
            seed=env.data_seed,
            order=options.order,
            rule=options.rule,
            results_a_page=options.results_a_page,
            ids=options.ids,
        )

    def tasks(self, split: str, n: int | None = None) -> Sequence[Goal]:
        """See `World.tasks`."""
        check_split(split, SPLITS, "a shop")
        return self.shop.of_split(split)[:n]

    def make_env(self) -> WebshopEnv:
        """See `World.make_env`."""
        env, options = self._env, self._env.webshop
        return WebshopEnv(
            self.shop,
            env.max_steps,
            options.mode,
            show_instruction=options.show_instruction,
            show_attributes=options.show_attributes,
            anchor=env.anchor,
            partial=options.partial_reward,
        )


WORLDS: dict[str, Callable[[EnvConfig], World]] = {"alfworld": Alfworld, "webshop": Webshop}
"""By the name in `env.name`; any other name is a world of the user's own."""


def catalogue(data: str, products: int, seed: int, difficulty: float) -> Catalogue:
    """Returns a shop's products: `products` generated ones, or those of the folder `data`.

    Raises:
        ShopError: The folder is no store.
    """
    if data == GENERATED:
        return generated_catalogue(products, seed=seed, difficulty=difficulty)
    return Catalogue.open(Path(data))
