"""Reads the three published files: products, their attributes and instructions, instructions by people.

What the published loader does with them is kept: ids that are `nan`, longer than ten characters or repeated
are left out; values of options are stripped, lower-cased and spaced at `/`; of option names that differ in
case only, the later one's values stay; of three prices, the first two make a range. That loader also needs a
picture of every product and a record in the attribute file; neither is asked for here.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from envs.webshop.files import read_json, read_records
from envs.webshop.nouns import Nouns
from envs.webshop.product import NO_ATTRIBUTES, NO_PRICE_TEXT, HumanInstruction, Product, ShopError

_HOW_TO_SKIP = "Correct it, or leave malformed products out (--skip-malformed)."
_LONGEST_ID = 10


class _Malformed(ValueError):
    """A record cannot be used; says what was got and expected."""


def read_products(
    products: str | Path,
    attributes: str | Path,
    human: str | Path | None = None,
    *,
    nouns: Nouns | None = None,
    limit: int | None = None,
    skip_malformed: bool = False,
) -> Iterator[Product]:
    """Yields the products of the published files in their order; files may end in `.gz`.

    The product file is read piece by piece, since it may be larger than memory; the other two at once.

    Args:
        products: List of products (`items_shuffle*.json`).
        attributes: Id → attributes and synthetic instruction (`items_ins*.json`).
        human: Id → instructions written by people (`items_human_ins.json`), or None.
        nouns: Nouns of every title; None leaves them empty, which is enough for pages and search.
        limit: Read only so many records; like in the published loader, dropped ones count.
        skip_malformed: Leave out malformed products with one warning instead of failing.

    Raises:
        ShopError: a file is missing, damaged or of another kind, or a record is malformed: the message names
            file and record.
    """
    asked = _table(attributes, "attributes")
    written = {} if human is None else _table(human, "instructions by people")
    seen: set[str] = set()
    skipped: list[str] = []
    for number, row in enumerate(read_records(products, "products"), start=1):
        if limit is not None and number > limit:
            break
        try:
            product = _product(row, asked, written, nouns, seen)
        except _Malformed as error:
            skipped.append(f"{str(products)!r}, record {number} ({_name(row)}): {error}.")
            if not skip_malformed:
                raise ShopError(f"{skipped[0]} {_HOW_TO_SKIP}") from None
            continue
        if product is not None:
            seen.add(product.asin)
            yield product
    if skipped:
        warnings.warn(f"{len(skipped)} malformed products left out; the first: {skipped[0]}", stacklevel=2)
    if not seen:
        raise ShopError(f"0 products in {str(products)!r}: it has to be a list of products with ids.")


def _table(path: str | Path, what: str) -> Mapping[str, Any]:
    table = read_json(path, what)
    if not isinstance(table, dict):
        raise ShopError(
            f"{str(path)!r} holds a {type(table).__name__}, expected {what}: an object, its keys product ids."
        )
    return table


def _name(row: Any) -> str:
    return repr(row.get("asin", "no asin")) if isinstance(row, dict) else "no object"


def _product(
    row: Any, asked: Mapping[str, Any], written: Mapping[str, Any], nouns: Nouns | None, seen: set[str]
) -> Product | None:
    """Makes a product of its records; None if the published loader drops it."""
    if not isinstance(row, dict):
        raise _Malformed(f"got a {type(row).__name__}, expected an object")
    asin = _text(row, "asin")
    if asin == "nan" or len(asin) > _LONGEST_ID or asin in seen:
        return None
    record = asked.get(asin, {})
    title = _text(row, "name")
    price_text, prices = _prices(row.get("pricing"))
    try:
        attributes, instruction, wanted = _asked(record)
    except _Malformed as error:
        raise _Malformed(f"in its record of the attribute file: {error}") from None
    try:
        human = _human(written.get(asin, []))
    except _Malformed as error:
        raise _Malformed(f"in its instructions by people: {error}") from None
    return Product(
        asin=asin,
        title=title,
        description=_text(row, "full_description"),
        bullets=_bullets(row),
        price_text=price_text,
        prices=prices,
        category=_text(row, "category"),
        product_category=_text(row, "product_category"),
        query=_text(row, "query").lower().strip(),
        options=_options(row),
        attributes=attributes,
        instruction=instruction,
        instruction_attributes=wanted,
        human=human,
        nouns=() if nouns is None else nouns.of(title),
    )


def _value(row: Any, key: str) -> Any:
    if not isinstance(row, dict):
        raise _Malformed(f"got a {type(row).__name__}, expected an object")
    if key not in row:
        raise _Malformed(f"no {key!r}; it has {', '.join(map(repr, row)) or 'nothing'}")
    return row[key]


def _text(row: Any, key: str) -> str:
    value = _value(row, key)
    if not isinstance(value, str):
        raise _Malformed(f"{key!r} is {value!r}, expected a string")
    return value


def _texts(row: Any, key: str) -> tuple[str, ...]:
    value = _value(row, key)
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise _Malformed(f"{key!r} is {value!r}, expected a list of strings")
    return tuple(value)


def _bullets(row: dict[str, Any]) -> tuple[str, ...]:
    """Bullet points; a single one may stand without its list."""
    alone = isinstance(_value(row, "small_description"), str)
    return (row["small_description"],) if alone else _texts(row, "small_description")


def _prices(pricing: Any) -> tuple[str, tuple[float, ...]]:
    """Returns the price as displayed, and what it parses to."""
    if not pricing:
        return NO_PRICE_TEXT, ()
    parts = pricing.split("$")[1:] if isinstance(pricing, str) else []
    try:
        prices = tuple(float(Decimal(re.sub(r"[^\d.]", "", part))) for part in parts)
    except InvalidOperation:
        prices = ()
    if not prices:
        raise _Malformed(f"'pricing' is {pricing!r}, expected '$12.50', '$10.00 - $20.00', '' or null")
    return " to ".join(f"${price}" for price in prices[:2]), prices[:2]


def _options(row: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    listed = _value(row, "customization_options")
    if not listed:
        return {}
    if not isinstance(listed, dict):
        raise _Malformed(f"'customization_options' is a {type(listed).__name__}, expected an object")
    options = {}
    for name, contents in listed.items():
        if contents is None:
            continue
        if not isinstance(contents, list):
            raise _Malformed(f"option {name!r} is a {type(contents).__name__}, expected a list of values")
        values = (_text(content, "value") for content in contents)
        options[name.lower()] = tuple(value.strip().replace("/", " | ").lower() for value in values)
    return options


def _asked(record: Any) -> tuple[tuple[str, ...], str | None, tuple[str, ...]]:
    """Attributes, synthetic instruction and what it asks for, of a record of the attribute file."""
    if not isinstance(record, dict):
        raise _Malformed(f"got a {type(record).__name__}, expected an object")
    attributes = _texts(record, "attributes") if "attributes" in record else NO_ATTRIBUTES
    if record.get("instruction") is None:
        return attributes, None, ()
    return attributes, _text(record, "instruction"), _texts(record, "instruction_attributes")


def _human(records: Any) -> tuple[HumanInstruction, ...]:
    if not isinstance(records, list):
        raise _Malformed(f"got a {type(records).__name__}, expected a list")
    return tuple(
        HumanInstruction(
            _text(record, "instruction"),
            _texts(record, "instruction_attributes"),
            _texts(record, "instruction_options"),
        )
        for record in records
    )
