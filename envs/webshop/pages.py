"""Pages of the shop as text, made straight from the products, in the two published text forms.

A page is a list of parts. `text` shows their strings joined by ` [SEP] `; `text_rich` one per line, with
buttons marked, selected options and visited products marked as clicked.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from envs.webshop.product import Product
from envs.webshop.shop import Shop
from envs.webshop.state import State

SEPARATOR = " [SEP] "

BACK_TO_SEARCH = "Back to Search"
PREVIOUS = "< Prev"
NEXT = "Next >"
BUY = "Buy Now"
SEARCH = "Search"
SUB_PAGES = ("Description", "Features", "Reviews", "Attributes")

Kind = Literal["plain", "button", "product", "option"]


class Part(NamedTuple):
    """A string on a page.

    Attributes:
        text: As the page has it; `text` strips it.
        kind: What it is to the visitor.
        name: Of an option value: its option. Of a product: its id.
    """

    text: str
    kind: Kind = "plain"
    name: str = ""


_BACK = Part(BACK_TO_SEARCH, "button")
_PREVIOUS = Part(PREVIOUS, "button")
_NEXT = Part(NEXT, "button")
_ITEM_BUTTONS = [Part(name, "button") for name in (*SUB_PAGES[:3], BUY)]
_ITEM_BUTTONS_ATTRIBUTES = [Part(name, "button") for name in (*SUB_PAGES, BUY)]


def page(shop: Shop, state: State, attributes: bool = False) -> list[Part]:
    """Returns the parts of the page a visitor is at.

    Args:
        shop: The shop.
        state: Where the visitor is.
        attributes: Whether product pages have a button to the attributes (hidden from buyers normally).
    """
    match state.place:
        case "start":
            return _start(state)
        case "results":
            return _results(shop, state)
        case "item":
            return _item(shop, state, attributes)
        case "sub":
            return [*_head(state), _PREVIOUS, *_details(shop.catalogue[state.asin], state.sub)]
    return _done(state)


def _start(state: State) -> list[Part]:
    return [
        Part("WebShop"),
        Part("Instruction: "),
        Part(state.goal.instruction),
        Part(SEARCH, "button"),
    ]


def _head(state: State) -> list[Part]:
    return [Part("Instruction:"), Part(state.goal.instruction), _BACK]


def _results(shop: Shop, state: State) -> list[Part]:
    number = state.number
    parts = [*_head(state), Part(f"Page {number} (Total results: {len(state.found)})")]
    if number > 1:
        parts.append(_PREVIOUS)
    parts.append(_NEXT)
    for rank, asin in enumerate(_shown(shop, state), start=1):
        product = shop.catalogue[asin]
        shown_as = asin if shop.ids == "asin" else str(rank)
        parts += (Part(shown_as, "product", asin), Part(product.title), Part(product.price_text))
    return parts


def _shown(shop: Shop, state: State) -> Sequence[str]:
    """Ids of the products on this page of the results."""
    end = state.number * shop.results_a_page
    return state.found[max(0, end - shop.results_a_page) : end]


def _item(shop: Shop, state: State, attributes: bool) -> list[Part]:
    product = shop.catalogue[state.asin]
    parts = [*_head(state), _PREVIOUS]
    for name, values in product.options.items():
        parts.append(Part(name))
        parts += [Part(value, "option", name) for value in values]
    parts += (Part(product.title), Part(f"Price: {product.price_text}"), Part("Rating: N.A."))
    return parts + (_ITEM_BUTTONS_ATTRIBUTES if attributes else _ITEM_BUTTONS)


def _details(product: Product, sub: str) -> Iterator[Part]:
    if sub == "Description":
        yield Part(product.description)
    elif sub == "Features":
        for bullet in product.bullets:
            yield Part(f" {bullet}")
    elif sub == "Attributes":
        for attribute in product.attributes:
            yield Part(f" {attribute}")
        yield from map(Part, (product.category, product.query, product.product_category))


def _done(state: State) -> list[Part]:
    # What it says of purchase and target was meant for a page that hides them; only these are filled in.
    blanks = [s for field in ("attrs", "category", "query", "product category") for s in (field, "None")]
    target = ("asin", "options", "attrs", "price upper", "instuction text", "category", "product category")
    return [
        Part(text)
        for text in (
            "Thank you for shopping with us!",
            "Your code: ",
            "None",
            " (Paste it in your MTurk interface.)",
            "Purchased",
            "asin",
            state.asin,
            "options",
            _json_in_html(dict(state.options)),
            *blanks,
            "Target",
            *target,
            "query",
            "Goal ",
            "None",
            "Reward",
            "Your score (min 0.0, max 1.0)",
            str(state.bought.total),
            "Reward Details ",
            "None",
        )
    ]


def _json_in_html(value: object) -> str:
    text = json.dumps(value, sort_keys=True)
    for symbol in "<>&'":
        text = text.replace(symbol, f"\\u{ord(symbol):04x}")
    return text


def _visible(parts: Sequence[Part]) -> Iterator[Part]:
    # The published text has neither empty strings nor bare line ends.
    return (part for part in parts if part.text not in ("", "\n"))


def plain_text(parts: Sequence[Part]) -> str:
    """Returns the `text` form. It does not show which options are selected."""
    return SEPARATOR.join([part.text.strip() for part in _visible(parts)])


def without_instruction(parts: Sequence[Part], state: State) -> list[Part]:
    """Returns what follows the instruction, or everything on the last page, which does not show it."""
    if state.place == "done":
        return list(parts)
    return list(parts[3 if state.place == "start" else 2 :])


def quoted_text(parts: Sequence[Part], state: State) -> str:
    """Returns the `text` form as published prompts and anchors have it: no instruction, parts in quotes."""
    if state.place == "done":
        return plain_text(parts)
    return SEPARATOR.join([f"'{part.text.strip()}'" for part in _visible(without_instruction(parts, state))])


def rich_text(parts: Sequence[Part], state: State) -> str:
    """Returns the `text_rich` form.

    As published, an option counts as selected where its value stands in double quotes anywhere in the
    address: one with a quote or a non-ASCII letter in it never does, one quoted in the query always does.
    """
    address, clicked, lines = state.address, [], []
    for text, kind, name in _visible(parts):
        if kind == "plain":
            lines.append(text)
            continue
        indent = {"button": "", "option": "  ", "product": "\n"}[kind]
        selected = kind == "option" and f'"{text}"' in address
        if selected:
            clicked.append(f"You have clicked {text}.")
        mark = "clicked button" if selected or (kind == "product" and name in state.opened) else "button"
        lines.append(f"{indent}[{mark}] {text} [{mark}_]")
    return "".join(f"{line}\n" for line in (*reversed(clicked), *lines))
