"""WebShop as a world: a shop, generated or from a folder, and its goals."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from commands.world import GENERATED, World, check_split
from configs.schema import EnvConfig
from envs.subset import Roster
from envs.webshop import Catalogue, Shop, WebshopEnv, open_shop
from envs.webshop.generate import generated_catalogue
from envs.webshop.splits import SPLITS
from envs.webshop.store import MANIFEST

if TYPE_CHECKING:
    from envs.wire.description import Description
    from envs.wire.task_book import ListedTasks


class Webshop(World):
    """A shop, generated or from a folder, and its goals."""

    def __init__(self, env: EnvConfig) -> None:
        """Opens the shop."""
        super().__init__(env)
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

    def roster(self, split: str, n: int | None = None) -> Roster:
        """See `World.roster`; a goal is made when it is taken."""
        check_split(split, SPLITS, "a shop")
        return self.shop.of_split(split).roster()

    def families(self, roster: Roster) -> tuple[str, ...]:
        """See `World.families`: the root categories of all goals."""
        return self.shop.goals.families

    def source(self) -> Mapping[str, Any]:
        """See `World.source`."""
        env, options = self._env, self._env.webshop
        goals = {key: getattr(options, key) for key in ("goals", "rule", "order")}
        if env.data == GENERATED:
            made = {"products": options.products, "difficulty": env.difficulty}
        else:
            made = {"store": _store_digest(env)}
        return {"data": env.data, "data_seed": env.data_seed} | goals | made

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

    def task_book(self) -> ListedTasks:
        """See `World.task_book`: a server has all goals of its shop."""
        from envs.wire.task_book import ListedTasks

        # Going through them in their shuffled order takes ten times as long.
        return ListedTasks(self.shop.goals.in_load_order())

    @classmethod
    def description(cls, env: EnvConfig) -> Description:
        """See `World.description`; what is generated its options say, of a folder its checksums do."""
        from envs.wire.description import describe

        options = {"max_steps": env.max_steps, "anchor": env.anchor, "data_seed": env.data_seed}
        options |= env.webshop.model_dump()
        if env.data == GENERATED:
            return describe("webshop", options | {"difficulty": env.difficulty})
        return describe("webshop", options, _store_digest(env))


def catalogue(data: str, products: int, seed: int, difficulty: float) -> Catalogue:
    """Returns a shop's products: `products` generated ones, or those of the folder `data`.

    Raises:
        ShopError: The folder is no store.
    """
    if data == GENERATED:
        return generated_catalogue(products, seed=seed, difficulty=difficulty)
    return Catalogue.open(Path(data))


def _store_digest(env: EnvConfig) -> str:
    """Digest of a store's manifest, which holds checksums of the ids and of the whole search index."""
    return hashlib.blake2b((Path(env.data) / MANIFEST).read_bytes(), digest_size=12).hexdigest()
