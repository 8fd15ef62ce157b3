"""What a visitor can do: read an action, and follow it from one state to the next.

Published behaviour throughout, but for two searches that crash there and are refused here, and ids that are
not upper-case, which cannot be opened there (docs/webshop.md).
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

from configs.seeds import derive
from envs.webshop.pages import BACK_TO_SEARCH, BUY, NEXT, PREVIOUS, SEARCH, SUB_PAGES, Part
from envs.webshop.reward import reward
from envs.webshop.shop import Shop
from envs.webshop.state import State

FOUND_AT_MOST = 50
SEARCH_HINT = "search[<your query>]"

_SUB_PAGES = {name.lower(): name for name in SUB_PAGES}
_BUTTONS = {name.lower() for name in (BACK_TO_SEARCH, PREVIOUS, NEXT, BUY)}


def parse_action(action: str) -> tuple[str, str] | None:
    """Splits `name[argument]`; the argument in lower case. None if the action does not have that form.

    The match is greedy and on the first line only: the name goes up to the last `[` that leaves an argument
    before the last `]`, and what follows that is ignored.
    """
    line = action.partition("\n")[0]
    end = line.rfind("]")
    start = line.rfind("[", 1, max(end - 1, 0))
    if start < 1:
        return None
    return line[:start], line[start + 1 : end].lower()


def clickables(parts: Sequence[Part]) -> dict[str, Part]:
    """Returns what can be clicked on a page, by the text to click it with, in the published order.

    Of equal texts the last one counts, at the place of the first.
    """
    found: dict[str, Part] = {}
    for kind in ("button", "product"):
        found |= {part.text.lower(): part for part in parts if part.kind == kind}
    return found | {part.text: part for part in parts if part.kind == "option"}


def admissible(targets: Mapping[str, Part], state: State) -> tuple[str, ...]:
    """Returns the actions that would be accepted: a search to fill in on the start page, and every click.

    Searching is accepted elsewhere too, but no page says so.
    """
    search = (SEARCH_HINT,) if state.place == "start" else ()
    return search + tuple(f"click[{name}]" for name in targets if _can_be_clicked(name))


def _can_be_clicked(name: str) -> bool:
    return name != SEARCH.lower() and parse_action(f"click[{name}]") == ("click", name)


def act(shop: Shop, state: State, targets: Mapping[str, Part], action: str) -> State | None:
    """Follows an action; None if it is refused, which leaves everything as it is.

    Args:
        shop: The shop.
        state: Where the visitor is.
        targets: `clickables` of that page.
        action: Any string.
    """
    match parse_action(action):
        case ("search", words):
            return _search(shop, state, tuple(words.split(" ")))
        case ("click", name) if name in targets and name != SEARCH.lower():
            return _click(shop, state, name, targets[name])
    return None


def _search(shop: Shop, state: State, words: tuple[str, ...], number: int = 1) -> State | None:
    listings = state.listings
    match words:
        case ("<a>", *_) | ("<c>",):
            return None
        case ("<r>", *_):
            found, listings = _random_listing(shop, state), listings + 1
        case ("<c>", category, *_):
            found = shop.in_category(category.strip())
        case ("<q>", *query):
            found = shop.found_by(" ".join(query).strip())
        case _:
            found = shop.catalogue.search(words, FOUND_AT_MOST)
    return replace(
        state,
        place="results",
        words=words,
        number=number,
        found=tuple(found),
        asin="",
        sub="",
        options=(),
        listings=listings,
    )


def _random_listing(shop: Shop, state: State) -> list[str]:
    rng = random.Random(derive(state.seed, "webshop", "listing", state.listings))
    asins = shop.catalogue.asins
    return [asins[i] for i in rng.sample(range(len(asins)), min(FOUND_AT_MOST, len(asins)))]


def _turn_to(shop: Shop, state: State, number: int) -> State:
    """Another page of the last search; a random listing is drawn again, as in the published code."""
    if state.words[0] == "<r>":
        return _search(shop, state, state.words, number)
    return replace(state, place="results", number=number, asin="", sub="", options=())


def _click(shop: Shop, state: State, name: str, target: Part) -> State:
    # Texts of buttons come first, wherever the text stands: an option value `features` opens the features.
    if name in _BUTTONS:
        followed = _press(shop, state, name)
        if followed is not None:
            return followed
    if name in _SUB_PAGES:
        return replace(state, place="sub", sub=_SUB_PAGES[name])
    if target.kind == "product":
        return replace(state, place="item", asin=target.name, sub="", opened=state.opened | {target.name})
    if target.kind == "option":
        chosen = dict(state.options) | {target.name.lower(): name}
        return replace(state, place="item", sub="", options=tuple(chosen.items()))
    return replace(state, place="item", sub="")  # cannot happen: only buttons of this page get here


def _press(shop: Shop, state: State, name: str) -> State | None:
    """Presses one of the four buttons; None where its text is not that button's."""
    if name == BUY.lower():
        product = shop.catalogue[state.asin]
        bought = reward(product, state.goal, shop.price(state.asin), dict(state.options))
        return replace(state, place="done", sub="", bought=bought)
    if name == BACK_TO_SEARCH.lower():
        return State(state.goal, state.seed, state.name, listings=state.listings)
    place = state.place_by_address
    if place == "results":
        return _turn_to(shop, state, state.number + (1 if name == NEXT.lower() else -1))
    if name == NEXT.lower():
        return None
    return replace(state, place="item", sub="") if place == "sub" else _turn_to(shop, state, state.number)
