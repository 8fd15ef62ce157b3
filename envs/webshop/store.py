"""A catalogue in a folder, which all processes of a machine read through the page cache.

    manifest.json    format, version, counts, where the nouns come from, a checksum of each array
    products.sqlite  one row per product, with a checksum of its own
    *.npy            ids in load order, and the search index, memory-mapped
    goals-…/         what seeds decide about its goals, added when they are first asked for; see `draws.py`

Checksums are CRC-32: of the arrays when the folder is opened, of a product when it is read.
"""

from __future__ import annotations

import functools
import json
import os
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence, ValuesView
from contextlib import closing
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from envs.webshop.arrays import appearing, read_arrays, write_arrays
from envs.webshop.product import HumanInstruction, Product, ShopError, search_text
from envs.webshop.product_search import Index, IndexBuilder

FORMAT = "webshop store"
VERSION = 1

MANIFEST = "manifest.json"
_PRODUCTS, _IDS = "products.sqlite", "ids"
_ARRAYS = (_IDS, *(field.name for field in fields(Index)))
_COLUMNS = tuple(field.name for field in fields(Product))
_TUPLES = ("bullets", "prices", "attributes", "instruction_attributes", "nouns")
_CHUNK = 4096  # ids decoded at once
_KEPT = 1024  # decoded products kept per process, about 5 MB
_AGAIN = "Delete the folder and import the shop again."
_TABLE = "CREATE TABLE products (position INTEGER PRIMARY KEY, asin TEXT UNIQUE, checksum INTEGER, body BLOB)"


def write_store(folder: str | Path, products: Iterable[Product], *, noun_source: str) -> int:
    """Writes products and their search index; the folder appears when all of it is there.

    Args:
        folder: Must not exist, or be empty.
        products: In load order; taken one by one, so they need not fit in memory.
        noun_source: Where their nouns come from; see `Catalogue`.

    Returns:
        Number of products.

    Raises:
        ShopError: the folder has something in it, two products have one id, or there is no product.
    """
    folder = Path(folder)
    check_free(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with appearing(folder) as partial:
        ids, index = _write_products(partial / _PRODUCTS, products)
        arrays = {_IDS: np.array([name.encode() for name in ids])}
        arrays |= {name: getattr(index, name) for name in _ARRAYS[1:]}
        manifest = {"format": FORMAT, "version": VERSION, "products": len(ids), "noun_source": noun_source}
        manifest["bytes"] = (partial / _PRODUCTS).stat().st_size
        manifest["checksums"] = write_arrays(partial, arrays)
        (partial / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    return len(ids)


def check_free(folder: Path) -> None:
    """Fails where a store cannot be written.

    Raises:
        ShopError: something is there.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ShopError(f"{str(folder)!r} exists and is not empty: delete it, or choose another folder.")


def _write_products(path: Path, products: Iterable[Product]) -> tuple[list[str], Index]:
    ids: list[str] = []
    index = IndexBuilder()

    def rows() -> Iterator[tuple[str, int, bytes]]:
        for product in products:
            body = _encode(product)
            ids.append(product.asin)
            index.add(product.asin, search_text(product))
            yield product.asin, zlib.crc32(body), body

    with closing(sqlite3.connect(path)) as table:
        # Nobody sees the folder before it is complete: what is half written is thrown away.
        table.execute("PRAGMA journal_mode = OFF")
        table.execute("PRAGMA synchronous = OFF")
        table.execute(_TABLE)
        try:
            table.executemany("INSERT INTO products (asin, checksum, body) VALUES (?, ?, ?)", rows())
        except sqlite3.IntegrityError as error:
            raise ShopError(f"two products have the id {ids[-1]!r}: ids have to differ.") from error
        table.commit()
    if not ids:
        raise ShopError("0 products: a shop has to have some.")
    return ids, index.build()


def _encode(product: Product) -> bytes:
    def plain(written: HumanInstruction) -> list[Any]:
        return [written.text, written.attributes, written.options]

    return json.dumps([getattr(product, name) for name in _COLUMNS], default=plain).encode()


def _decode(body: bytes) -> Product:
    row = dict(zip(_COLUMNS, json.loads(body), strict=True))
    for name in _TUPLES:
        row[name] = tuple(row[name])
    row["options"] = {name: tuple(values) for name, values in row["options"].items()}
    row["human"] = tuple(
        HumanInstruction(text, tuple(asked), tuple(chosen)) for text, asked, chosen in row["human"]
    )
    return Product(**row)


class _Ids(Sequence[str]):
    """Ids in load order, kept as bytes in a memory-mapped array."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    def __len__(self) -> int:
        return len(self._array)

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            return [name.decode() for name in self._array[at].tolist()]
        return self._array[at].decode()

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), _CHUNK):
            yield from self[start : start + _CHUNK]


class _Values(ValuesView[Product]):
    """All products in load order, read in one go."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._store = store

    def __iter__(self) -> Iterator[Product]:
        for asin, checksum, body in self._store.rows("ORDER BY position"):
            yield self._store.checked(asin, checksum, body)


class Store(Mapping[str, Product]):
    """An opened folder: id → product.

    Attributes:
        folder: Where it is.
        asins: Ids in load order.
        index: The search index; it numbers products in load order.
        noun_source: See `Catalogue`.
    """

    def __init__(self, folder: Path, asins: Sequence[str], index: Index, noun_source: str) -> None:
        """Use `open_store`."""
        self.folder = folder
        self.asins = asins
        self.index = index
        self.noun_source = noun_source
        self._connection: tuple[int, sqlite3.Connection] | None = None
        self._read = functools.lru_cache(maxsize=_KEPT)(self._read_product)

    def __len__(self) -> int:
        return len(self.asins)

    def __iter__(self) -> Iterator[str]:
        return iter(self.asins)

    def __contains__(self, asin: object) -> bool:
        return bool(list(self.rows("WHERE asin = ?", asin))) if isinstance(asin, str) else False

    def __getitem__(self, asin: str) -> Product:
        return self._read(asin)

    def values(self) -> ValuesView[Product]:
        """All products in load order; faster than one by one."""
        return _Values(self)

    def _read_product(self, asin: str) -> Product:
        for row in self.rows("WHERE asin = ?", asin):
            return self.checked(*row)
        raise KeyError(asin)

    def rows(self, which: str, *parameters: str) -> Iterator[tuple[str, int, bytes]]:
        """Yields id, checksum and body of products."""
        try:
            yield from self._table().execute(f"SELECT asin, checksum, body FROM products {which}", parameters)
        except sqlite3.Error as error:
            raise ShopError(f"{str(self.folder / _PRODUCTS)!r} is damaged: {error}. {_AGAIN}") from error

    def checked(self, asin: str, checksum: int, body: bytes) -> Product:
        """Decodes a product whose checksum holds."""
        if zlib.crc32(body) != checksum:
            raise ShopError(
                f"{str(self.folder / _PRODUCTS)!r}: product {asin!r} has another checksum. {_AGAIN}"
            )
        return _decode(body)

    def _table(self) -> sqlite3.Connection:
        # A connection must not be used on both sides of a fork.
        if self._connection is None or self._connection[0] != os.getpid():
            uri = f"{(self.folder / _PRODUCTS).resolve().as_uri()}?mode=ro&immutable=1"
            self._connection = os.getpid(), sqlite3.connect(uri, uri=True, check_same_thread=False)
        return self._connection[1]


def open_store(folder: str | Path) -> Store:
    """Opens what `write_store` wrote.

    Raises:
        ShopError: it is not there, of another kind or version, or damaged.
    """
    folder = Path(folder)
    manifest = _read_manifest(folder)
    products = folder / _PRODUCTS
    size = products.stat().st_size if products.is_file() else 0
    if size != manifest["bytes"]:
        raise ShopError(f"{str(products)!r} has {size} bytes instead of {manifest['bytes']}. {_AGAIN}")
    arrays = read_arrays(folder, {name: manifest["checksums"][name] for name in _ARRAYS}, _AGAIN)
    return Store(folder, _Ids(arrays.pop(_IDS)), Index(**arrays), manifest["noun_source"])


def _read_manifest(folder: Path) -> dict[str, Any]:
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ShopError(
            f"no shop at {str(folder)!r}: it has no {MANIFEST}. "
            "`python run.py data webshop --generate --out FOLDER` makes one."
        ) from error
    except ValueError as error:
        raise ShopError(f"{str(folder / MANIFEST)!r} is damaged: {error}. {_AGAIN}") from error
    kind = manifest.get("format") if isinstance(manifest, dict) else None
    if kind != FORMAT:
        raise ShopError(f"{str(folder)!r} holds a {kind!r}, expected a {FORMAT!r}: choose another folder.")
    if manifest.get("version") != VERSION:
        raise ShopError(
            f"{str(folder)!r} has version {manifest.get('version')!r} of the format, this program reads "
            f"{VERSION}. {_AGAIN}"
        )
    lacking = {"products", "bytes", "noun_source", "checksums"} - manifest.keys()
    lacking |= set(_ARRAYS) - set(manifest.get("checksums", _ARRAYS))
    if lacking:
        raise ShopError(f"{str(folder / MANIFEST)!r} is damaged: no {', '.join(sorted(lacking))}. {_AGAIN}")
    return manifest
