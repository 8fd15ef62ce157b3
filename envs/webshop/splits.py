"""Which goals are for training and which for measuring, and how much the two have in common."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from envs.webshop.goal_list import Goals
from envs.webshop.goals import SPLITS
from envs.webshop.product import ShopError

Rule = Literal["by_product", "papers", "upstream"]

TRAIN, EVAL, TEST = range(len(SPLITS))

# The split of a product, by the remainder of its id's digest, which is that of the last byte.
_PARTS = (EVAL, TEST, TRAIN, TRAIN, TRAIN, TRAIN, TRAIN, TRAIN)


def _by_product(goals: Goals) -> np.ndarray:
    places, goal_of = np.unique(goals.product_places(), return_inverse=True)
    digests = (hashlib.sha256(goals.asin(place).encode()).digest() for place in places.tolist())
    return np.array([_PARTS[digest[-1] % len(_PARTS)] for digest in digests], np.uint8)[goal_of]


def _papers(goals: Goals) -> np.ndarray:
    return _by_place(len(goals), test=500, evaluation=0)


def _upstream(goals: Goals) -> np.ndarray:
    return _by_place(len(goals), test=500, evaluation=1000)


def _by_place(n: int, test: int, evaluation: int) -> np.ndarray:
    splits = np.full(n, TRAIN, np.uint8)
    splits[:test] = TEST
    splits[test : test + evaluation] = EVAL
    return splits


RULES: dict[Rule, Callable[[Goals], np.ndarray]] = {
    "by_product": _by_product,
    "papers": _papers,
    "upstream": _upstream,
}


def assign_splits(goals: Goals, rule: Rule = "by_product") -> Goals:
    """Gives every goal its split.

    Args:
        goals: In their shuffled order, which the rules that count depend on.
        rule: "by_product": a product's goals are all in one split, decided by its id alone, so that products
            may come and go. "papers": the first 500 goals are the test split, the others the train split
            (GiGPO and the code that descends from it). "upstream": 500 test, the next 1000 eval, the others
            train (the published definition). The last two put most test products into training as well.

    Raises:
        ShopError: no such rule.
    """
    if rule not in RULES:
        raise ShopError(f"there is no split rule {rule!r}; rules: {', '.join(RULES)}.")
    return goals.with_splits(RULES[rule](goals))


@dataclass(frozen=True, slots=True)
class Overlap:
    """What a held-out split has in common with the train split.

    Attributes:
        split: The held-out split.
        goals, products: Its size.
        seen_products: Its products that also have train goals.
        goals_of_seen: Its goals for such a product.
        seen_sentences: Its goals whose very sentence is a train goal's.
    """

    split: str
    goals: int
    products: int
    seen_products: int
    goals_of_seen: int
    seen_sentences: int


def overlaps(goals: Goals) -> list[Overlap]:
    """Measures every held-out split that has goals against the train split."""
    products: dict[str, Counter[str]] = {split: Counter() for split in SPLITS}
    sentences: dict[str, Counter[str]] = {split: Counter() for split in SPLITS}
    for goal in goals.in_load_order():
        products[goal.split][goal.asin] += 1
        sentences[goal.split][goal.instruction] += 1
    return [
        Overlap(
            split=split,
            goals=own.total(),
            products=len(own),
            seen_products=len(own.keys() & products["train"].keys()),
            goals_of_seen=_shared(own, products["train"]),
            seen_sentences=_shared(sentences[split], sentences["train"]),
        )
        for split, own in products.items()
        if split != "train" and own
    ]


def _shared(own: Counter[str], train: Counter[str]) -> int:
    return sum(count for what, count in own.items() if what in train)


def split_report(goals: Goals) -> str:
    """Describes the splits in lines of text: sizes, and what each held-out one shares with training."""
    sizes = zip(SPLITS, np.bincount(goals.splits, minlength=len(SPLITS)), strict=True)
    counts = ", ".join(f"{size} {split}" for split, size in sizes if size)
    _, products = np.unique(goals.product_places(), return_counts=True)
    largest = np.sort(products)[-5:].sum()
    lines = [
        f"{len(goals)} goals of {len(products)} products: {counts}",
        f"the five products with most goals have {largest / len(goals):.1%} of them",
    ]
    for found in overlaps(goals):
        lines.append(
            f"{found.split}: {found.seen_products} of {found.products} products and "
            f"{found.goals_of_seen} of {found.goals} goals ({found.goals_of_seen / found.goals:.1%}) "
            f"are of products trained on; sentences trained on word for word: {found.seen_sentences}"
        )
    return "\n".join(lines)
