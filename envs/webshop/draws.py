"""What seeds decide about a shop: prices, price limits and the order of its goals, as compact arrays.

Draws follow the published code in kind and order (first a price for every product with a price range, then a
limit for every instruction, all from one generator), so that its goals come out where it was seeded alike:
there the generator is the global one, which it never seeds, and limits differ from process to process.

They take one pass over all products. For a catalogue in a folder they are kept there, a folder for each kind
of goals and pair of seeds, so that a process that opens the shop again only maps them:

    goals-VERSION-KIND-SEED-ORDER/manifest.json    checksums of the store's manifest and of each array
                                  *.npy            the fields of `Draws`
"""

from __future__ import annotations

import json
import math
import random
import warnings
import zlib
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from envs.webshop.arrays import appearing, read_arrays, write_arrays
from envs.webshop.goals import KINDS, NO_LIMIT, Kind, Products, reckoned_price
from envs.webshop.product import Product, ShopError
from envs.webshop.store import MANIFEST

VERSION = 2
"""Raise it when equal seeds begin to decide something else."""

MOST_GOALS = 2**31 - 1

# A limit is the larger of two of the first four of these above the price.
_LIMITS = tuple(10.0 * i for i in range(1, 100))


class DrawnPrices(Mapping[str, float]):
    """Prices drawn for products with a price range: asin → dollars, ordered by asin."""

    def __init__(self, draws: Draws) -> None:
        """Looks them up in `draws`."""
        self._asins, self._prices = draws.range_asins, draws.range_prices

    def __len__(self) -> int:
        return len(self._asins)

    def __iter__(self) -> Iterator[str]:
        return (asin.decode() for asin in self._asins.tolist())

    def __getitem__(self, asin: str) -> float:
        key = asin.encode()
        at = bisect_left(self._asins, key)
        if at == len(self) or self._asins[at] != key:
            raise KeyError(asin)
        return float(self._prices[at])


@dataclass(frozen=True, slots=True, eq=False)
class Draws:
    """I instructions, which make G goals numbered in load order, and R products with a price range.

    Attributes:
        products: Place of each instruction's product in load order, int32 [I], ascending.
        entries: Number of its first goal within the product, int32 [I].
        limits: Its price limit in dollars, or `NO_LIMIT`, float64 [I].
        starts: Number of its first goal, and at last G, int64 [I + 1].
        order: Goals by number in the order the split rules count by, int32 [G].
        range_asins: Ids of products with a price range, ascending bytes [R].
        range_prices: Their drawn prices in dollars, float64 [R].
        families: Place of each instruction's family in `family_names`, int32 [I].
        family_names: Root categories of their products, each once, ascending bytes.
    """

    products: np.ndarray
    entries: np.ndarray
    limits: np.ndarray
    starts: np.ndarray
    order: np.ndarray
    range_asins: np.ndarray
    range_prices: np.ndarray
    families: np.ndarray
    family_names: np.ndarray


def make_draws(catalogue: Products, kind: Kind, seed: int, order: int) -> Draws:
    """Draws prices, then limits, then the order of the goals.

    Args:
        catalogue: The products.
        kind: "synthetic": one goal for every combination of a product's option values. "human": one for every
            instruction a person wrote, without those that ask for no attribute.
        seed: Of prices and limits.
        order: Seeds the shuffle (233 in the published code).

    Raises:
        ShopError: a synthetic instruction asks for no attribute, or there is no goal, or too many.
    """
    rng = random.Random(seed)
    drawn: dict[str, float] = {}
    products, entries, counts, prices = array("i"), array("i"), array("q"), array("d")
    categories: list[str] = []
    goals = 0
    instructions = _synthetic if kind == "synthetic" else _human
    for place, product in enumerate(catalogue.products()):
        if len(product.prices) == 2:
            drawn[product.asin] = rng.uniform(*product.prices)
        for entry, count in instructions(product):
            goals += count
            if goals > MOST_GOALS:
                raise ShopError(
                    f"more than {MOST_GOALS} goals: product {product.asin!r} alone has {count}, one for "
                    "every combination of its option values. Leave it, or some of its options, out."
                )
            products.append(place)
            entries.append(entry)
            counts.append(count)
            prices.append(reckoned_price(product, drawn))
            categories.append(product.category)
    if not goals:
        raise ShopError(
            f"0 {kind} goals in {len(catalogue)} products: none has {kind} instructions. "
            f"Give the file with them, or take the other kind of goals."
        )
    limits = array("d", (_limit(price, rng) for price in prices))
    shuffled = array("i", range(goals))
    random.Random(order).shuffle(shuffled)
    ranges = sorted((asin.encode(), price) for asin, price in drawn.items())
    names = sorted({category.encode() for category in categories})
    places = {name.decode(): place for place, name in enumerate(names)}
    return Draws(
        products=np.array(products),
        entries=np.array(entries),
        limits=np.array(limits),
        starts=np.concatenate(([0], np.cumsum(counts, dtype=np.int64))),
        order=np.array(shuffled),
        range_asins=np.array([asin for asin, _ in ranges], dtype=np.bytes_),
        range_prices=np.array([price for _, price in ranges], dtype=np.float64),
        families=np.array([places[category] for category in categories], dtype=np.int32),
        family_names=np.array(names, dtype=np.bytes_),
    )


def _synthetic(product: Product) -> Iterator[tuple[int, int]]:
    """Yields the first goal's number within the product, and how many follow from one instruction."""
    if product.instruction is None:
        return
    if not product.instruction_attributes:
        raise ShopError(
            f"product {product.asin!r} has an instruction without instruction_attributes; "
            "give both or neither in the attributes file."
        )
    yield 0, math.prod(map(len, product.options.values()))


def _human(product: Product) -> Iterator[tuple[int, int]]:
    for n, written in enumerate(product.human):
        if written.attributes:
            yield n, 1


def _limit(price: float, rng: random.Random) -> float:
    above = _LIMITS[bisect_right(_LIMITS, price) :][:4]
    return max(rng.sample(above, 2)) if len(above) > 1 else NO_LIMIT


def open_draws(catalogue: Products, kind: Kind, seed: int, order: int) -> Draws:
    """Returns `make_draws`' result; of a catalogue in a folder, memory-mapped from there.

    Several processes may open one folder at once. Where it cannot be written, a warning says that every
    process draws for itself.

    Raises:
        ShopError: no such kind; see `make_draws`; or what is kept is damaged, or of another shop.
    """
    if kind not in KINDS:
        raise ShopError(f"goals are of kind {' or '.join(KINDS)}, got {kind!r}.")
    if catalogue.folder is None:
        return make_draws(catalogue, kind, seed, order)
    folder = catalogue.folder / f"goals-{VERSION}-{kind}-{seed}-{order}"
    shop = zlib.crc32((catalogue.folder / MANIFEST).read_bytes())
    if not folder.exists():
        draws = make_draws(catalogue, kind, seed, order)
        try:
            _write(folder, draws, shop)
        except OSError as error:
            if not folder.exists():  # no other process was faster
                warnings.warn(
                    f"the goals of {str(catalogue.folder)!r} cannot be kept there ({error}): every process "
                    "that opens the shop makes them again. Open it once where the folder can be written.",
                    stacklevel=3,
                )
                return draws
    return _read(folder, shop)


def _write(folder: Path, draws: Draws, shop: int) -> None:
    with appearing(folder) as partial:
        arrays = {field.name: getattr(draws, field.name) for field in fields(Draws)}
        manifest = {"shop": shop, "checksums": write_arrays(partial, arrays)}
        (partial / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")


def _read(folder: Path, shop: int) -> Draws:
    again = "Delete this folder; its goals are made again when the shop is opened."
    try:
        manifest: dict[str, Any] = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        kept, checksums = manifest["shop"], manifest["checksums"]
        checksums = {field.name: checksums[field.name] for field in fields(Draws)}
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ShopError(f"{str(folder / MANIFEST)!r} is damaged: {error!r}. {again}") from error
    if kept != shop:
        raise ShopError(f"{str(folder)!r} holds the goals of another shop. {again}")
    return Draws(**read_arrays(folder, checksums, again))
