"""Compares rewards, goals and pages with those of the published environment, value for value."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from envs.base import EnvError
from envs.webshop.actions import act, clickables
from envs.webshop.catalogue import Catalogue
from envs.webshop.goals import Goal, Products
from envs.webshop.pages import page, plain_text, rich_text
from envs.webshop.product import Product, ShopError
from envs.webshop.reward import reward
from envs.webshop.shop import Shop, open_shop
from envs.webshop.state import State

PUBLISHED_COUNTS = (1000, 6910, 13)
"""Products, synthetic goals and human goals of the published small set."""

REWARDS, TRANSCRIPTS, CATALOGUE = "golden_rewards.json", "golden_transcripts.json", "catalogue"


@dataclass(frozen=True)
class ParityResult:
    """Outcome of a comparison.

    Attributes:
        passed: Cases that agree in everything: purchases, sets of goals, walks in either text form.
        failed: The other cases.
        steps: Steps of walks compared, in either form.
        failures: What differs first in each failed case, readable.
    """

    passed: int
    failed: int
    steps: int
    failures: tuple[str, ...]


def run_parity(folder: str | Path) -> ParityResult:
    """Compares purchases, goals and walks.

    Args:
        folder: Holds `golden_rewards.json`, `golden_transcripts.json` and, in `catalogue/`, the product files
            the walks were made on.

    Raises:
        ShopError: a file is missing or unreadable.
    """
    root = Path(folder)
    rewards, walks = _read(root / REWARDS)["cases"], _read(root / TRANSCRIPTS)
    catalogue = open_folder(root / CATALOGUE)
    outcomes = [_compare_reward(case) for case in rewards]
    outcomes += [_compare_goals(catalogue, name, setup) for name, setup in walks["setups"].items()]
    steps = 0
    for walk in walks["transcripts"]:
        shop = _shop(catalogue, walks["setups"][walk["setup"]], walk)
        attributes = walks["setups"][walk["setup"]]["show_attrs"]
        for mode in ("text", "text_rich"):
            outcomes.append(_compare_walk(shop, walk, mode, attributes))
            steps += len(walk["steps"])
    failures = tuple(outcome for outcome in outcomes if outcome is not None)
    return ParityResult(len(outcomes) - len(failures), len(failures), steps, failures)


def open_folder(folder: str | Path) -> Catalogue:
    """Opens the catalogue whose files in a folder have the published names (`items_shuffle*.json*`, …).

    Raises:
        ShopError: not exactly one file of a name, or an unreadable one.
    """
    root = Path(folder)
    names = ("items_shuffle*.json*", "items_ins*.json*", "items_human_ins*.json*")
    found = [sorted(root.glob(name)) for name in names]
    for name, files in zip(names, found, strict=True):
        if len(files) != 1:
            raise ShopError(f"{str(root)!r} must have one file {name}, has {len(files)}.")
    return Catalogue.from_files(*(files[0] for files in found))


def count_goals(folder: str | Path) -> tuple[int, int, int]:
    """Returns how many products, synthetic goals and human goals the files of a folder make."""
    catalogue = open_folder(folder)
    return len(catalogue), *(len(open_shop(catalogue, kind=kind).goals) for kind in ("synthetic", "human"))


def _read(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ShopError(f"No reference data at {str(path)!r}.") from error
    except ValueError as error:
        raise ShopError(f"Reference data {str(path)!r} is damaged: {error}.") from error


def _compare_reward(case: Mapping[str, Any]) -> str | None:
    where = f"reward {case['id']} ({case['kind']})"
    try:
        made = reward(_product(case), _goal(case["goal"], case["goal_nouns"]), case["price"], case["options"])
    except EnvError as error:
        # The published code fails on these as well.
        return None if "error" in case else f"{where}: {error}"
    if "error" in case:
        return f"{where}: expected an error, got {made.total}"
    expected = {"reward": case["reward"]} | case["info"]
    return _difference(where, expected, {"reward": made.total} | made.info())


def _product(case: Mapping[str, Any]) -> Product:
    fields = case["product"]
    return Product(
        asin=fields["asin"],
        title=fields["Title"],
        description=fields["Description"],
        bullets=tuple(fields["BulletPoints"]),
        price_text="",
        prices=(),
        category="",
        product_category=fields["product_category"],
        query=fields["query"],
        options={},
        attributes=tuple(fields["Attributes"]),
        instruction=None,
        instruction_attributes=(),
        human=(),
        nouns=tuple(case["product_nouns"]),
    )


def _goal(fields: Mapping[str, Any], nouns: Sequence[str]) -> Goal:
    options = fields["goal_options"]
    return Goal(
        id=fields["asin"],
        split="test",
        asin=fields["asin"],
        instruction=fields["instruction_text"],
        attributes=tuple(fields["attributes"]),
        options=tuple(options.items() if isinstance(options, dict) else options),
        price_limit=fields["price_upper"],
        category=fields["category"],
        product_category=fields["product_category"],
        query=fields["query"],
        nouns=tuple(nouns),
    )


def _compare_goals(catalogue: Catalogue, name: str, setup: Mapping[str, Any]) -> str | None:
    kind = "human" if setup["human_goals"] else "synthetic"
    shop = open_shop(catalogue, kind=kind, seed=setup["python_random_seed_before_constructing"])
    keys = ("asin", "instruction", "attributes", "options", "price_limit")
    made = [{key: getattr(goal, key) for key in keys} for goal in shop.goals]
    wanted = [_goal(fields, ()) for fields in setup["goals"]]
    expected = [{key: getattr(goal, key) for key in keys} for goal in wanted]
    prices = {asin: shop.price(asin) for asin in setup["product_prices"]}
    return _difference(
        f"goals of setup {name!r}",
        {"count": len(expected), "prices": setup["product_prices"], "goals": expected},
        {"count": len(made), "prices": prices, "goals": made},
    )


class _Renamed:
    """A catalogue with other nouns for some products."""

    def __init__(self, catalogue: Products, nouns: Mapping[str, tuple[str, ...]]) -> None:
        self._catalogue, self._nouns = catalogue, nouns
        self.asins, self.noun_source = catalogue.asins, catalogue.noun_source
        self.products, self.search = catalogue.products, catalogue.search

    def __len__(self) -> int:
        return len(self._catalogue)

    def __contains__(self, asin: object) -> bool:
        return asin in self._catalogue

    def __getitem__(self, asin: str) -> Product:
        product = self._catalogue[asin]
        return replace(product, nouns=self._nouns[asin]) if asin in self._nouns else product


def _shop(catalogue: Catalogue, setup: Mapping[str, Any], walk: Mapping[str, Any]) -> Shop:
    """The shop of a walk, with its one goal.

    Walks do not say which words are nouns, so the goal and what is bought get nouns that have the title score
    of the walk; how that score comes about is compared in the purchases.
    """
    share = Fraction(1)
    bought = ""
    for step in walk["steps"]:
        if step.get("reward_info"):
            share = Fraction(step["reward_info"]["title_score"]).limit_denominator(100)
            bought = step["url"].split("/")[5]
    wanted = tuple(f"noun{i}" for i in range(share.denominator))
    goal = _goal(setup["goals"][walk["goal_index"]], wanted)
    nouns = {bought: wanted[: share.numerator]}
    return Shop(_Renamed(catalogue, nouns), setup["product_prices"], (goal,))


def _compare_walk(shop: Shop, walk: Mapping[str, Any], mode: str, attributes: bool) -> str | None:
    state = State(shop.goals[0], seed=0, name=str(walk["goal_index"]))
    for t, expected in enumerate(walk["steps"]):
        where = f"walk {walk['id']} ({walk['title']}), {mode}, step {t}, after {expected['action']!r}"
        before = state
        parts = page(shop, state, attributes)
        if expected["action"] is not None:
            state = act(shop, state, clickables(parts), expected["action"]) or state
            parts = page(shop, state, attributes)
        if "error" in expected:
            # It crashed here; an action that crashes there is refused here.
            return None if state is before else f"{where}: not refused"
        got = _seen(state, parts, mode) | (_earned(before, state) if t else {})
        difference = _difference(where, _expected(expected, mode), got)
        if difference is not None:
            return difference
    return None


def _seen(state: State, parts: Sequence[Any], mode: str) -> dict[str, Any]:
    return {
        "obs": plain_text(parts) if mode == "text" else rich_text(parts, state),
        "url": state.address,
        "has_search_bar": state.place == "start",
        "clickables": list(clickables(parts)),
    }


def _earned(before: State, state: State) -> dict[str, Any]:
    new = state.bought if before.bought is None else None
    return {"reward": new.total if new else 0.0, "done": new is not None} | (
        {"reward_info": new.info()} if new else {}
    )


def _expected(step: Mapping[str, Any], mode: str) -> dict[str, Any]:
    values = {"obs": step["obs"][mode], "url": step["url"], **step["available"]}
    return values | {key: step[key] for key in ("reward", "done", "reward_info") if step.get(key) is not None}


def _difference(where: str, expected: Mapping[str, Any], got: Mapping[str, Any]) -> str | None:
    """Says what differs first, or None."""
    for key, value in _walk(expected):
        mine = got
        for name in key:
            mine = mine.get(name) if isinstance(mine, Mapping) else mine[name] if name < len(mine) else None
        if mine != value:
            return f"{where}: {'.'.join(map(str, key))}\n  expected {value!r}\n  got      {mine!r}"
    return None


def _walk(value: Any, key: tuple = ()) -> Iterator[tuple[tuple, Any]]:
    if isinstance(value, Mapping) and value:
        for name, inner in value.items():
            yield from _walk(inner, (*key, name))
    elif isinstance(value, list) and value and isinstance(value[0], Mapping):
        for i, inner in enumerate(value):
            yield from _walk(inner, (*key, i))
    else:
        yield key, value
