"""Where a visitor of the shop is: an immutable value, and the address the published site has for it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Literal

from envs.webshop.goals import Goal
from envs.webshop.reward import Reward

Place = Literal["start", "results", "item", "sub", "done"]

SITE = "http://127.0.0.1:3000"


@dataclass(frozen=True, slots=True)
class State:
    """One moment of a visit.

    Attributes:
        goal: What to buy.
        seed: Of the random listing (`search[<r>]`).
        name: Names the visit in addresses.
        place: Kind of page.
        words: The last search, split at spaces.
        number: Page of the results, from 1 (0 by a quirk of addresses).
        found: Ids the search returned.
        asin: Product looked at, or "".
        sub: Sub page looked at (`Features`), or "".
        options: Selected option values, name → value, in the order of selection.
        opened: Products looked at since the start page.
        listings: Random listings drawn so far.
        bought: The reward of the purchase, once made.
    """

    goal: Goal
    seed: int
    name: str
    place: Place = "start"
    words: tuple[str, ...] = ()
    number: int = 0
    found: tuple[str, ...] = ()
    asin: str = ""
    sub: str = ""
    options: tuple[tuple[str, str], ...] = ()
    opened: frozenset[str] = frozenset()
    listings: int = 0
    bought: Reward | None = None

    @property
    def address(self) -> str:
        """The published site's address of this page.

        Two of that site's behaviours depend on what happens to be in it (see `place_by_address` and
        `pages.rich_text`), so it is written as there, unquoted and with Python's way to print a mapping.
        """
        if self.place == "start":
            return f"{SITE}/{self.name}"
        words, options = "+".join(self.words), dict(self.options)
        if self.place == "results":
            return f"{SITE}/search_results/{self.name}/{words}/{self.number}"
        if self.place == "item":
            return f"{SITE}/item_page/{self.name}/{self.asin}/{words}/{self.number}/{json.dumps(options)}"
        if self.place == "sub":
            return f"{SITE}/item_sub_page/{self.name}/{self.asin}/{words}/{self.number}/{self.sub}/{options}"
        return f"{SITE}/done/{self.name}/{self.asin}/{options}"

    @property
    def place_by_address(self) -> Place:
        """The place the published site believes to be at: the first page name found anywhere in the address.

        A query or an option that contains such a name is taken for the page.
        """
        address = self.address
        names: tuple[tuple[str, Place], ...] = (
            ("search_results", "results"),
            ("item_page", "item"),
            ("item_sub_page", "sub"),
            ("done", "done"),
        )
        return next((place for name, place in names if name in address), "start")
