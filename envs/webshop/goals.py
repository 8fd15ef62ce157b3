"""What to buy: a goal is made of one instruction of a catalogue, with a price limit that seeds have drawn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from envs.webshop.product import Product

Kind = Literal["synthetic", "human"]
KINDS: tuple[Kind, ...] = ("synthetic", "human")

SPLITS = ("train", "eval", "test")

Option = str | tuple[str, str]
"""An option asked for: a value (human goals), or its name and value (synthetic goals)."""

UNKNOWN_PRICE = 100.0
NO_LIMIT = 1_000_000.0


class Products(Protocol):
    """What a shop needs of a catalogue."""

    @property
    def asins(self) -> Sequence[str]:
        """Ids of all products, in load order."""

    @property
    def noun_source(self) -> str:
        """Where the nouns of titles come from; "" where there are none, and so no rewards."""

    @property
    def folder(self) -> Path | None:
        """The store it was opened from; None of products in memory."""

    def __len__(self) -> int: ...

    def __contains__(self, asin: object) -> bool: ...

    def __getitem__(self, asin: str) -> Product: ...

    def products(self) -> Iterator[Product]:
        """Yields all products in load order."""

    def search(self, words: Sequence[str], k: int = 50) -> list[str]:
        """Returns the ids of the best `k` products, best first."""


@dataclass(frozen=True, slots=True)
class Goal:
    """One thing to buy: a task.

    Attributes:
        id: `synthetic/ASIN/n` or `human/ASIN/n`, n counting within the product.
        split: One of `SPLITS`, by the rule the shop was opened with.
        asin: The product the instruction was written for; others may earn as much.
        instruction: The sentence shown, with options and price limit.
        attributes: Asked-for attributes, never empty.
        options: Asked-for options.
        price_limit: Dollars; `NO_LIMIT` where the sentence names none.
        category, product_category, query, nouns: Of the product; see `Product`.
    """

    id: str
    split: str
    asin: str
    instruction: str
    attributes: tuple[str, ...]
    options: tuple[Option, ...]
    price_limit: float
    category: str
    product_category: str
    query: str
    nouns: tuple[str, ...]

    @property
    def family(self) -> str:
        """Kind of task: the root category."""
        return self.category


def reckoned_price(product: Product, drawn: Mapping[str, float]) -> float:
    """The number the reward compares with a limit: drawn, or the only one, or 100 where there is none."""
    if product.asin in drawn:
        return drawn[product.asin]
    return product.prices[0] if product.prices else UNKNOWN_PRICE


def goal_id(kind: Kind, asin: str, n: int) -> str:
    """What a product's n-th goal is called."""
    return f"{kind}/{asin}/{n}"


def make_goal(product: Product, kind: Kind, n: int, limit: float, split: str) -> Goal:
    """Makes a product's n-th goal.

    Args:
        product: Has that many.
        kind: "synthetic": n counts the combinations of its option values, the last option by name fastest.
            "human": n counts its human instructions.
        limit: Price limit in dollars, or `NO_LIMIT`.
        split: What the goal is for.
    """
    options: tuple[Option, ...]
    if kind == "synthetic":
        options = combination(product, n)
        wanted = ", and ".join(f"{name}: {value}" for name, value in options)
        sentence = f"{product.instruction}{' with ' if wanted else ''}{wanted}"
        attributes = product.instruction_attributes
    else:
        written = product.human[n]
        sentence, attributes, options = written.text.strip("."), written.attributes, written.options
    price = "" if limit == NO_LIMIT else f", and price lower than {limit:.2f} dollars"
    return Goal(
        id=goal_id(kind, product.asin, n),
        split=split,
        asin=product.asin,
        instruction=sentence + price,
        attributes=attributes,
        options=options,
        price_limit=limit,
        category=product.category,
        product_category=product.product_category,
        query=product.query,
        nouns=product.nouns,
    )


def combination(product: Product, n: int) -> tuple[tuple[str, str], ...]:
    """Returns the n-th combination of option values, as names and values ordered by name."""
    chosen = []
    for name in sorted(product.options, reverse=True):
        n, at = divmod(n, len(product.options[name]))
        chosen.append((name, product.options[name][at]))
    return tuple(reversed(chosen))
