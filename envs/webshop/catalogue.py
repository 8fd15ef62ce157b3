"""A shop's products and its search: in memory, or in a folder that all processes of a machine share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from envs.webshop.load import read_products
from envs.webshop.nouns import Nouns
from envs.webshop.product import Product, ShopError, search_text
from envs.webshop.product_search import Index, IndexBuilder
from envs.webshop.store import Store, open_store


class Catalogue:
    """Products by id, and their search. It never changes, in memory or in a folder.

    Attributes:
        asins: Ids of all products, in load order.
        noun_source: Where the products' nouns come from ("spaCy en_core_web_sm 3.8.0"); "" where they have
            none, and then rewards cannot be computed.
    """

    def __init__(
        self, products: Mapping[str, Product], asins: Sequence[str], index: Index, noun_source: str
    ) -> None:
        """Use `from_products`, `from_files` or `open`."""
        self._products = products
        self._index = index
        self.asins = asins
        self.noun_source = noun_source

    @classmethod
    def from_products(cls, products: Iterable[Product], *, noun_source: str) -> Catalogue:
        """Holds products in memory.

        Raises:
            ShopError: two have the same id, or there are none.
        """
        held: dict[str, Product] = {}
        index = IndexBuilder()
        for product in products:
            if product.asin in held:
                raise ShopError(f"two products have the id {product.asin!r}: ids have to differ.")
            held[product.asin] = product
            index.add(product.asin, search_text(product))
        if not held:
            raise ShopError("0 products: a shop has to have some.")
        return cls(held, tuple(held), index.build(), noun_source)

    @classmethod
    def from_files(
        cls,
        products: str | Path,
        attributes: str | Path,
        human: str | Path | None = None,
        *,
        nouns: Nouns | None = None,
        limit: int | None = None,
        skip_malformed: bool = False,
    ) -> Catalogue:
        """Reads the published files into memory; arguments and errors are those of `read_products`."""
        read = read_products(
            products, attributes, human, nouns=nouns, limit=limit, skip_malformed=skip_malformed
        )
        return cls.from_products(read, noun_source="" if nouns is None else nouns.source)

    @classmethod
    def open(cls, folder: str | Path) -> Catalogue:
        """Opens a store that `write_store` made.

        Raises:
            ShopError: it is not there, of another kind or version, or damaged.
        """
        store = open_store(folder)
        return cls(store, store.asins, store.index, store.noun_source)

    @property
    def folder(self) -> Path | None:
        """The store it was opened from; None of products in memory."""
        return self._products.folder if isinstance(self._products, Store) else None

    def __reduce__(self) -> tuple[Any, ...]:
        """A worker process that is sent an opened store opens it again; products in memory are copied."""
        if self.folder is not None:
            return Catalogue.open, (self.folder,)
        return Catalogue, (self._products, self.asins, self._index, self.noun_source)

    def __len__(self) -> int:
        return len(self.asins)

    def __contains__(self, asin: object) -> bool:
        return asin in self._products

    def __getitem__(self, asin: str) -> Product:
        return self._products[asin]

    def products(self) -> Iterator[Product]:
        """Yields all products in load order; from a folder faster than one by one."""
        yield from self._products.values()

    def search(self, words: Sequence[str], k: int = 50) -> list[str]:
        """Returns the ids of the best `k` products for these words, in Lucene's order."""
        return [self.asins[number] for number in self._index.search(" ".join(words), k)]
