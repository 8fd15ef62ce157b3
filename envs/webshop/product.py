"""What a shop sells: one product, as its page, the search and the reward see it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from envs.base import EnvError

NO_ATTRIBUTES = ("DUMMY_ATTR",)
NO_PRICE_TEXT = "$100.0"


class ShopError(EnvError):
    """A shop's data is missing, malformed or damaged; the message names the file and the record."""


@dataclass(frozen=True, slots=True)
class HumanInstruction:
    """What a person wrote to have this product bought.

    Attributes:
        text: The sentences as written, without a price.
        attributes: What of it the reward looks for among the product's attributes; may be empty.
        options: Option values asked for (`orange`, `10.5`), without their names.
    """

    text: str
    attributes: tuple[str, ...]
    options: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Product:
    """One product.

    Attributes:
        asin: Its id, at most ten characters.
        title, description, bullets: As displayed, in their own case.
        price_text: As displayed: `$12.5`, `$10.0 to $20.0`, and `$100.0` where it has no price.
        prices: Dollars: (), (one,) or (first, second) of a range. The number the reward uses is drawn
            from a range elsewhere, from an explicit seed.
        category: Root of the catalogue's tree (`garden`).
        product_category: Path in the seller's tree, `A › B › C`.
        query: The query it was found by, lower-case.
        options: Option name → values in order, both lower-case, `/` in values written ` | `.
        attributes: What the reward matches; `NO_ATTRIBUTES` where the attribute file has no record.
        instruction: The synthetic instruction, without options and price, or None.
        instruction_attributes: What that instruction asks for.
        human: Instructions written by people.
        nouns: Lower-case nouns of the title, in order and with repeats; () where they are not known.
    """

    asin: str
    title: str
    description: str
    bullets: tuple[str, ...]
    price_text: str
    prices: tuple[float, ...]
    category: str
    product_category: str
    query: str
    options: Mapping[str, tuple[str, ...]]
    attributes: tuple[str, ...]
    instruction: str | None
    instruction_attributes: tuple[str, ...]
    human: tuple[HumanInstruction, ...]
    nouns: tuple[str, ...]


def search_text(product: Product) -> str:
    """Returns what the search index holds of a product: title, description, first bullet point, options."""
    options = ", and ".join(f"{name}: {', '.join(values)}" for name, values in product.options.items())
    first = product.bullets[0] if product.bullets else ""
    return " ".join((product.title, product.description, first, options)).lower()
