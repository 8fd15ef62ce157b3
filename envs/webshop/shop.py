"""A shop ready to be visited: a catalogue, the prices drawn for it, and its goals. Nothing in it changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from envs.webshop.draws import DrawnPrices, open_draws
from envs.webshop.goal_list import Goals
from envs.webshop.goals import SPLITS, Kind, Products, reckoned_price
from envs.webshop.product import ShopError
from envs.webshop.splits import Rule, assign_splits

Ids = Literal["asin", "rank"]
IDS: tuple[Ids, ...] = ("asin", "rank")


@dataclass(frozen=True)
class Shop:
    """What all visits share; one per process is enough.

    Attributes:
        catalogue: The products and their search.
        drawn: Prices drawn for products with a price range, asin → dollars.
        goals: In the order the split rules count by.
        results_a_page: Products a page of results lists; 10 as published.
        ids: What a page of results calls a product: "asin", its id, as published, or "rank", its place on the
            page from 1, so that a policy too small to copy an id can open it too.
    """

    catalogue: Products
    drawn: Mapping[str, float]
    goals: Goals
    results_a_page: int = 10
    ids: Ids = "asin"

    def price(self, asin: str) -> float:
        """Dollars the reward reckons with; for a range not what the page shows."""
        return reckoned_price(self.catalogue[asin], self.drawn)

    def of_split(self, split: str) -> Goals:
        """Returns the goals of a split, in order.

        Raises:
            ShopError: no such split, or no goal in it.
        """
        if split not in SPLITS:
            raise ShopError(f"a shop has no split {split!r}; splits: {', '.join(SPLITS)}.")
        goals = self.goals.of_split(split)
        if not goals:
            raise ShopError(
                f"0 of {len(self.goals)} goals are in split {split!r}: "
                "take another split rule, or more products."
            )
        return goals

    def found_by(self, query: str) -> Sequence[str]:
        """Ids of the products that were found by exactly this query, in load order."""
        return self._listed[0].get(query, ())

    def in_category(self, category: str) -> Sequence[str]:
        """Ids of the products of a root category, in load order."""
        return self._listed[1].get(category, ())

    @cached_property
    def _listed(self) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
        # Made at the first special query: few agents know of them, and a large catalogue takes a while.
        queries: dict[str, list[str]] = {}
        categories: dict[str, list[str]] = {}
        for product in self.catalogue.products():
            queries.setdefault(product.query, []).append(product.asin)
            categories.setdefault(product.category, []).append(product.asin)
        return queries, categories


def open_shop(
    catalogue: Products,
    *,
    kind: Kind = "synthetic",
    seed: int = 0,
    order: int = 233,
    rule: Rule = "by_product",
    results_a_page: int = 10,
    ids: Ids = "asin",
) -> Shop:
    """Opens a shop: draws prices, limits and the order of the goals, and splits them.

    Of a catalogue in a folder, what is drawn is kept there and read the next time; see `open_draws`.

    Args:
        catalogue: The products.
        kind: See `make_draws`.
        seed: Of prices and price limits. Equal catalogues and arguments give equal shops, in any process.
        order: Of the shuffle of the goals.
        rule: See `assign_splits`.
        results_a_page, ids: See `Shop`.

    Raises:
        ShopError: no goals of that kind, what is kept of them is damaged, an unknown kind, rule or way to
            name products, or no result per page.
    """
    if ids not in IDS:
        raise ShopError(f"ids must be one of {', '.join(IDS)}, got {ids!r}.")
    if results_a_page < 1:
        raise ShopError(f"a page of results lists at least one product, got results_a_page={results_a_page}.")
    draws = open_draws(catalogue, kind, seed, order)
    unsplit = np.zeros(len(draws.order), np.uint8)
    goals = assign_splits(Goals(catalogue, kind, draws, draws.order, unsplit), rule)
    return Shop(catalogue, DrawnPrices(draws), goals, results_a_page, ids)
