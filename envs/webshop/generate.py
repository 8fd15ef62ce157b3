"""A seeded shop of any size, in words of its own: nothing in it was ever on sale.

A product is drawn from a group (what its attributes and options may be) and a type (what it is called and
costs) of `shop_words.json`. Product number i depends on the seed and i alone, so a larger shop begins with
the smaller one. Every instruction asks for what its product has; no two option values of a product are alike,
and none reads like a button of a page. The nouns need no tagger: they are known from the word lists.
"""

from __future__ import annotations

import functools
import json
import math
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from envs.webshop.catalogue import Catalogue
from envs.webshop.product import NO_PRICE_TEXT, HumanInstruction, Product

NOUN_SOURCE = "webshop generator 1"

_IDS = 10**8

_MOST_COMBINATIONS = 36  # of option values, so of synthetic goals per product
_MOST_VALUES = 6  # of an option
_MISSING = (0.6, 0.2)  # share of a group's options that a product does not have, easiest and hardest
_NO_PRICE, _PRICE_RANGE = 0.06, 0.16  # shares of products
_WITH_INSTRUCTION, _WITH_HUMAN = 0.45, 0.35


@functools.cache
def _words() -> Mapping[str, Any]:
    return json.loads((Path(__file__).parent / "shop_words.json").read_text(encoding="utf-8"))


def generate_products(n: int, *, seed: int, difficulty: float = 1.0) -> Iterator[Product]:
    """Yields `n` products, about 0.1 ms each.

    Args:
        n: How many.
        seed: Same seed, same products; more products start with the same ones.
        difficulty: From 0, products with few options of one value, to 1, as in the published set.

    Raises:
        ValueError: `n` is not positive, there are not as many ids, or `difficulty` is not in [0, 1].
    """
    if not 0.0 <= difficulty <= 1.0:
        raise ValueError(f"difficulty must be in [0, 1], got {difficulty}.")
    if not 1 <= n <= _IDS:
        raise ValueError(f"a generated shop has 1 to {_IDS} products, got n = {n}.")
    ids = random.Random(f"webshop ids {seed}")
    start, factor = ids.randrange(_IDS), 10 * ids.randrange(_IDS // 10) + ids.choice((1, 3, 7, 9))
    for i in range(n):
        yield _product(_id(start + i * factor), random.Random(f"webshop product {seed} {i}"), difficulty)


def generated_catalogue(n: int, *, seed: int, difficulty: float = 1.0) -> Catalogue:
    """Returns a generated shop's products in memory; see `generate_products`."""
    products = generate_products(n, seed=seed, difficulty=difficulty)
    return Catalogue.from_products(products, noun_source=NOUN_SOURCE)


def _id(number: int) -> str:
    """Ten characters; different for numbers that differ modulo 10^8.

    Digits only: a page shows an id in upper case, but a click names it in lower case. Letters would then be
    other tokens, and a small policy could not copy the id.
    """
    return f"GN{number % _IDS:08}"


def _product(asin: str, rng: random.Random, difficulty: float) -> Product:
    words = _words()
    group = rng.choice(words["groups"])
    kind_of = rng.choice(group["types"])
    parts = {
        "brand": rng.choice(words["brands"]["starts"]) + rng.choice(words["brands"]["ends"]),
        "series": rng.choice(words["series"]),
        "kind": rng.choice(kind_of["kinds"]),
        "name": kind_of["name"],
        "query": kind_of["query"],
        "use": rng.choice(words["uses"][group["category"]]),
    }
    attributes = rng.sample(group["attributes"], rng.randint(3, 5))
    options = _options(rng, group["options"], difficulty)
    title = _title(rng, parts, attributes)
    price_text, prices = _price(rng, *kind_of["price"])
    instruction, wanted = _instruction(rng, parts["query"], attributes)
    return Product(
        asin=asin,
        title=title,
        description=_description(rng, parts, attributes),
        bullets=_bullets(rng, parts, attributes),
        price_text=price_text,
        prices=prices,
        category=group["category"],
        product_category=f"{group['path']} › {kind_of['leaf']}",
        query=parts["query"],
        options=options,
        attributes=tuple(attributes),
        instruction=instruction,
        instruction_attributes=wanted,
        human=_human(rng, parts, attributes, options),
        nouns=_nouns(title),
    )


def _title(rng: random.Random, parts: Mapping[str, str], attributes: Sequence[str]) -> str:
    named = " and ".join(attribute.title() for attribute in attributes[: rng.choice((1, 1, 2))])
    tail = rng.choice(_words()["tails"])
    return f"{parts['brand']} {parts['series']} {parts['kind']} {parts['name']}, {named} {tail}".strip()


def _nouns(title: str) -> tuple[str, ...]:
    found = re.findall(r"[a-z]+", title.lower())
    return tuple(word for word in found if word not in _words()["not_nouns"])


def _description(rng: random.Random, parts: Mapping[str, str], attributes: Sequence[str]) -> str:
    words = _words()
    named = f"{', '.join(attributes[:-1])} and {attributes[-1]}"
    number = f"Item number {parts['brand'][:2].upper()}{rng.randrange(10**6):06}."
    first = rng.choice(words["sentences"]).format(**parts)
    praise = rng.choice(words["praise"]).format(list=named)
    return " ".join((first, praise, rng.choice(words["closings"]), number))


def _bullets(rng: random.Random, parts: Mapping[str, str], attributes: Sequence[str]) -> tuple[str, ...]:
    forms = rng.sample(_words()["bullets"], min(len(attributes), len(_words()["bullets"])))
    return tuple(
        form.format(Attribute=attribute.capitalize(), attribute=attribute, **parts)
        for form, attribute in zip(forms, attributes, strict=False)
    )


def _price(rng: random.Random, low: float, high: float) -> tuple[str, tuple[float, ...]]:
    """A price in dollars, cheap ones more often, as text and as numbers."""

    def ending(dollars: float) -> float:
        return round(math.floor(dollars) + rng.choice((0.0, 0.49, 0.95, 0.99)), 2)

    share = rng.random()
    if share < _NO_PRICE:
        return NO_PRICE_TEXT, ()
    price = ending(math.exp(rng.uniform(math.log(low), math.log(high))))
    if share > _NO_PRICE + _PRICE_RANGE:
        return f"${price}", (price,)
    upper = ending(price * rng.uniform(1.1, 1.6) + 1)
    return f"${price} to ${upper}", (price, upper)


def _options(rng: random.Random, lists: Mapping[str, str], difficulty: float) -> dict[str, tuple[str, ...]]:
    """Options with some of their values, those in their usual order; few enough combinations."""
    options: dict[str, tuple[str, ...]] = {}
    combinations = 1
    easiest, hardest = _MISSING
    missing = easiest + (hardest - easiest) * difficulty
    limit = round(1 + (_MOST_VALUES - 1) * difficulty)
    for name, listed in lists.items():
        values = _words()["options"][listed]
        most = min(limit, len(values), _MOST_COMBINATIONS // combinations)
        if most < 1 or rng.random() < missing:
            continue
        count = rng.randint(1, most)
        chosen = sorted(rng.sample(range(len(values)), count))
        options[name] = tuple(values[at] for at in chosen)
        combinations *= count
    return options


def _instruction(
    rng: random.Random, query: str, attributes: Sequence[str]
) -> tuple[str | None, tuple[str, ...]]:
    if rng.random() >= _WITH_INSTRUCTION:
        return None, ()
    wanted = tuple(rng.sample(attributes, rng.randint(1, 3)))
    return f"Find me {', '.join(wanted)} {query}", wanted


def _human(
    rng: random.Random,
    parts: Mapping[str, str],
    attributes: Sequence[str],
    options: Mapping[str, Sequence[str]],
) -> tuple[HumanInstruction, ...]:
    """Instructions as a person might put them: some of the attributes, one value of some of the options."""
    if rng.random() >= _WITH_HUMAN:
        return ()
    written = []
    for form in rng.sample(_words()["asking"], rng.randint(1, 2)):
        wanted = rng.sample(attributes, rng.randint(1, 2))
        chosen = [rng.choice(values) for values in options.values() if rng.random() < 0.6]
        named = f" in {' and '.join(chosen)}" if chosen else ""
        text = form.format(attributes=" and ".join(wanted), options=named, **parts)
        written.append(HumanInstruction(text, tuple(wanted), tuple(chosen)))
    return tuple(written)
