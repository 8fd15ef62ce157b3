"""WebShop as a world: a shop, generated or from a folder, and its goals."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from configs.params import param
from envs.demonstration import Curriculum
from envs.subset import Roster
from envs.webshop.catalogue import Catalogue
from envs.webshop.demonstrate import WebshopLessons
from envs.webshop.env import WebshopEnv
from envs.webshop.generate import generated_catalogue
from envs.webshop.shop import Shop, open_shop
from envs.webshop.splits import SPLITS
from envs.webshop.store import MANIFEST
from envs.world import GENERATED, Options, Section, World

if TYPE_CHECKING:
    from envs.wire.description import Description
    from envs.wire.task_book import ListedTasks


@dataclass(frozen=True)
class WebshopOptions(Options):
    """The shop, its goals, and the form of its pages."""

    products: int = param(1000, "Generated shop only: its products.", low=1)
    goals: str = param(
        "synthetic",
        "Instructions made of attributes and options, or as people put them.",
        choices=("synthetic", "human"),
    )
    rule: str = param(
        "by_product",
        "How goals are split (docs/webshop.md); by_product shares no product.",
        choices=("by_product", "papers", "upstream"),
    )
    order: int = param(233, "Seed of the order of goals that the split rules count by.", low=0)
    mode: str = param("text", "Form of the pages.", choices=("text", "text_rich"))
    results_a_page: int = param(10, "Products that a page of results lists (published: 10).", low=1)
    ids: str = param(
        "asin", "What such a page calls them: their ids (published), or 1, 2, …", choices=("asin", "rank")
    )
    show_instruction: bool = param(
        True, "Pages repeat the instruction (false: the prompt states it, as in the papers)."
    )
    show_attributes: bool = param(False, "Product pages link to what the reward looks at.")
    partial_reward: bool = param(False, "Reward the score of any purchase, not just a success (papers: no).")


class Webshop(World):
    """A shop, generated or from a folder, and its goals."""

    Options = WebshopOptions
    noun = "goals"
    papers_tail = 20
    splits = tuple(SPLITS)

    def __init__(self, env: Section) -> None:
        """Opens the shop."""
        super().__init__(env)
        options = self.options
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
        self.check_split(split)
        return self.shop.of_split(split).roster()

    def families(self, roster: Roster) -> tuple[str, ...]:
        """See `World.families`: the root categories of all goals."""
        return self.shop.goals.families

    def source(self) -> Mapping[str, Any]:
        """See `World.source`."""
        env, options = self.env, self.options
        goals = {key: getattr(options, key) for key in ("goals", "rule", "order")}
        if env.data == GENERATED:
            made = {"products": options.products, "difficulty": env.difficulty}
        else:
            made = {"store": _store_digest(env)}
        return {"data": env.data, "data_seed": env.data_seed} | goals | made

    def make_env(self) -> WebshopEnv:
        """See `World.make_env`."""
        env, options = self.env, self.options
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
    def description(cls, env: Section) -> Description:
        """See `World.description`; what is generated its options say, of a folder its checksums do."""
        from envs.wire.description import describe

        options = {"max_steps": env.max_steps, "anchor": env.anchor, "data_seed": env.data_seed}
        options |= asdict(cls.read_options(env))
        if env.data == GENERATED:
            return describe("webshop", options | {"difficulty": env.difficulty})
        return describe("webshop", options, _store_digest(env))

    @classmethod
    def lessons(cls) -> Curriculum:
        """See `World.lessons`."""
        return Curriculum(WebshopLessons(), tokens=5_000_000, policy={"vocab": 1536, "whole": "shop"})


def catalogue(data: str, products: int, seed: int, difficulty: float) -> Catalogue:
    """Returns a shop's products: `products` generated ones, or those of the folder `data`.

    Raises:
        ShopError: The folder is no store.
    """
    if data == GENERATED:
        return generated_catalogue(products, seed=seed, difficulty=difficulty)
    return Catalogue.open(Path(data))


def _store_digest(env: Section) -> str:
    """Digest of a store's manifest, which holds checksums of the ids and of the whole search index."""
    return hashlib.blake2b((Path(env.data) / MANIFEST).read_bytes(), digest_size=12).hexdigest()
