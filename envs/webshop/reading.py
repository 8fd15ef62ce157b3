"""Reads instructions and pages as a buyer does: from their text alone."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from envs.base import Observation
from envs.webshop.pages import BACK_TO_SEARCH, BUY, NEXT, PREVIOUS, SEPARATOR, SUB_PAGES

_LIMIT = re.compile(r",? and price lower than (\d+\.\d+) dollars")
_PAGE = re.compile(r"Page (\d+) \(Total results: (\d+)\)")
_DOLLARS = re.compile(r"\d+(?:\.\d+)?")
_WORD = re.compile(r"[^\W_]+(?:[.'-][^\W_]+)*")
_BUTTONS = {name.lower() for name in (BACK_TO_SEARCH, PREVIOUS, NEXT, BUY, *SUB_PAGES)}

# Words of instructions that say nothing of the product.
_EMPTY_WORDS = """
a an the i im i'm me my am is are be can could will would need needs want wanted find show get give looking
look searching search shopping buy buying for of to in on at with and or that which it its some any one
please hello hi also like has have do you something comes
"""
_EMPTY = frozenset(_EMPTY_WORDS.split())


@dataclass(frozen=True, slots=True)
class Wish:
    """What an instruction asks for.

    Attributes:
        text: The instruction without the price limit, lower-case.
        words: Its telling words apart from options, in order, once each.
        options: Options by name, where it names them.
        limit: Dollars; infinite where it names none.
    """

    text: str
    words: tuple[str, ...]
    options: dict[str, str]
    limit: float


def parse_wish(instruction: str) -> Wish:
    """Understands both kinds of instruction; generated ones name options: `… with size: small, and …`."""
    found = _LIMIT.search(instruction)
    limit = float(found[1]) if found else float("inf")
    text = (instruction[: found.start()] if found else instruction).lower()
    described, options = text, {}
    for start in re.finditer(" with ", text):
        pairs = [pair.partition(": ") for pair in text[start.end() :].split(", and ")]
        if all(colon for _, colon, _ in pairs) and " with " not in pairs[0][0]:
            described, options = text[: start.start()], {name: value for name, _, value in pairs}
            break
    words = dict.fromkeys(word for word in tokens(described) if word not in _EMPTY)
    return Wish(text, tuple(words), options, limit)


def tokens(text: str) -> list[str]:
    """Words of a text, lower-case."""
    return _WORD.findall(text.lower())


def stems(text: str) -> set[str]:
    """Words of a text without plural endings, to compare by."""
    return {stem(word) for word in tokens(text)}


def stem(word: str) -> str:
    """A word without plural or possessive ending."""
    word = word.removesuffix("'s")
    if len(word) > 4 and word.endswith("ies"):
        return f"{word[:-3]}y"
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


@dataclass(frozen=True, slots=True)
class Offer:
    """A product in a list of results; prices in dollars, the same twice where it has one.

    Attributes:
        name: What the list calls it: its id, or its place there.
        title, low, high: As listed.
    """

    name: str
    title: str
    low: float
    high: float

    @property
    def key(self) -> str:
        """What tells it from other products, on other pages too: its id, or else its title."""
        return self.title if self.name.isdecimal() and len(self.name) < 4 else self.name


@dataclass(frozen=True, slots=True)
class View:
    """What a page shows.

    Attributes:
        place: Kind of page; "sub" is a sub page of a product.
        number, total: Of a page of results.
        offers: Of a page of results.
        options: Of a product: name → values that can be clicked.
        text: Of a sub page.
    """

    place: Literal["start", "results", "item", "sub", "done"]
    number: int = 0
    total: int = 0
    offers: tuple[Offer, ...] = ()
    options: tuple[tuple[str, tuple[str, ...]], ...] = ()
    text: str = ""


def read_page(observation: Observation) -> View:
    """Reads a page in mode "text", with or without its instruction.

    Raises:
        ValueError: the text has another form.
    """
    parts = observation.text.split(SEPARATOR)
    if all(part.startswith("'") and part.endswith("'") for part in parts):
        parts = [part[1:-1] for part in parts]
    if parts[-1] == "Search":
        return View("start")
    if parts[0].startswith("Thank you for shopping"):
        return View("done")
    if BACK_TO_SEARCH not in parts:
        raise ValueError(f"not a page in mode 'text': {observation.text[:80]!r}")
    body = parts[parts.index(BACK_TO_SEARCH) + 1 :]
    clickable = {action[6:-1] for action in observation.admissible if action.startswith("click[")}
    heading = _PAGE.fullmatch(body[0])
    if heading:
        return View(
            "results", int(heading[1]), int(heading[2]), tuple(_offers(body[1:], clickable - _BUTTONS))
        )
    if body[-1] == BUY:
        return View("item", options=_options(body[1:], clickable - _BUTTONS))
    return View("sub", text=" ".join(body[1:]))


def _offers(parts: Iterable[str], names: set[str]) -> list[Offer]:
    rows: list[list[str]] = []
    for part in parts:
        if part.lower() in names:
            rows.append([part])
        elif rows:
            rows[-1].append(part)
    offers = []
    for name, *rest in rows:
        prices = [float(number) for number in _DOLLARS.findall(rest[-1] if rest else "")] or [0.0]
        offers.append(Offer(name, rest[0] if len(rest) > 1 else "", prices[0], prices[-1]))
    return offers


def _options(parts: Iterable[str], values: set[str]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    found: list[tuple[str, list[str]]] = []
    for part in parts:
        if part in values and found:
            found[-1][1].append(part)
        else:
            found.append((part, []))
    return tuple((name, tuple(listed)) for name, listed in found if listed)
