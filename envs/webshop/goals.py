"""What to buy: goals made of a catalogue's instructions, with prices and price limits from a seed.

Draws follow the published code in kind and order (first a price for every product with a price range, then a
limit for every instruction, all from one generator), so that its goals come out where it was seeded alike:
there the generator is the global one, which it never seeds, and limits differ from process to process.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from envs.webshop.product import Product, ShopError

Kind = Literal["synthetic", "human"]
KINDS: tuple[Kind, ...] = ("synthetic", "human")

Option = str | tuple[str, str]
"""An option asked for: a value (human goals), or its name and value (synthetic goals)."""

UNKNOWN_PRICE = 100.0
NO_LIMIT = 1_000_000.0

# A limit is the larger of two of the first four of these above the price.
_LIMITS = tuple(10.0 * i for i in range(1, 100))


class Products(Protocol):
    """What a shop needs of a catalogue."""

    @property
    def asins(self) -> Sequence[str]:
        """Ids of all products, in load order."""

    @property
    def noun_source(self) -> str:
        """Where the nouns of titles come from; "" where there are none, and so no rewards."""

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
        split: `train`, `eval` or `test`, by the rule the shop was opened with.
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


def draw_prices(catalogue: Products, rng: random.Random) -> dict[str, float]:
    """Draws a price for every product with a price range (asin → dollars), in load order."""
    return {
        product.asin: rng.uniform(*product.prices)
        for product in catalogue.products()
        if len(product.prices) == 2
    }


def reckoned_price(product: Product, drawn: Mapping[str, float]) -> float:
    """The number the reward compares with a limit: drawn, or the only one, or 100 where there is none."""
    if product.asin in drawn:
        return drawn[product.asin]
    return product.prices[0] if product.prices else UNKNOWN_PRICE


def make_goals(
    catalogue: Products, kind: Kind, drawn: Mapping[str, float], rng: random.Random, order: int
) -> list[Goal]:
    """Makes all goals of a kind, without a split.

    Args:
        catalogue: The products.
        kind: "synthetic": one goal for every combination of a product's option values. "human": one for every
            instruction a person wrote, without those that ask for no attribute.
        drawn: See `draw_prices`.
        rng: Draws the limits.
        order: Seeds the shuffle (233 in the published code).

    Raises:
        ShopError: a synthetic instruction asks for no attribute, or there is no goal.
    """
    if kind not in KINDS:
        raise ShopError(f"goals are of kind {' or '.join(KINDS)}, got {kind!r}.")
    make = _synthetic if kind == "synthetic" else _human
    goals: list[Goal] = []
    for product in catalogue.products():
        goals += make(product, reckoned_price(product, drawn), rng)
    if not goals:
        raise ShopError(
            f"0 {kind} goals in {len(catalogue)} products: none has {kind} instructions. "
            f"Give the file with them, or take the other kind of goals."
        )
    random.Random(order).shuffle(goals)
    return goals


def _synthetic(product: Product, price: float, rng: random.Random) -> Iterator[Goal]:
    if product.instruction is None:
        return
    if not product.instruction_attributes:
        raise ShopError(
            f"product {product.asin!r} has an instruction without instruction_attributes; "
            "give both or neither in the attributes file."
        )
    limit, limit_text = _limit(price, rng)
    names = sorted(product.options)
    for n, values in enumerate(itertools.product(*(product.options[name] for name in names))):
        options = tuple(zip(names, values, strict=True))
        wanted = ", and ".join(f"{name}: {value}" for name, value in options)
        sentence = f"{product.instruction}{' with ' if wanted else ''}{wanted}{limit_text}"
        attributes = product.instruction_attributes
        yield _goal(f"synthetic/{product.asin}/{n}", product, sentence, attributes, options, limit)


def _human(product: Product, price: float, rng: random.Random) -> Iterator[Goal]:
    for n, written in enumerate(product.human):
        if not written.attributes:
            continue
        limit, limit_text = _limit(price, rng)
        sentence = written.text.strip(".") + limit_text
        name = f"human/{product.asin}/{n}"
        yield _goal(name, product, sentence, written.attributes, written.options, limit)


def _limit(price: float, rng: random.Random) -> tuple[float, str]:
    """Draws a price limit; returns it with the words that state it."""
    above = [limit for limit in _LIMITS if limit > price][:4]
    if len(above) < 2:
        return NO_LIMIT, ""
    limit = max(rng.sample(above, 2))
    return limit, f", and price lower than {limit:.2f} dollars"


def _goal(
    name: str,
    product: Product,
    sentence: str,
    attributes: tuple[str, ...],
    options: tuple[Option, ...],
    limit: float,
) -> Goal:
    return Goal(
        id=name,
        split="",
        asin=product.asin,
        instruction=sentence,
        attributes=attributes,
        options=options,
        price_limit=limit,
        category=product.category,
        product_category=product.product_category,
        query=product.query,
        nouns=product.nouns,
    )
