"""Which goals are for training and which for measuring, and how much the two have in common."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from envs.webshop.goals import Goal
from envs.webshop.product import ShopError

SPLITS = ("train", "eval", "test")
Rule = Literal["by_product", "papers", "upstream"]

# A digest's remainder by 8 decides a product's split: 0 eval, 1 test, the rest train.
_PARTS = 8


def _by_product(place: int, goal: Goal) -> str:
    digest = hashlib.sha256(goal.asin.encode()).hexdigest()
    return {0: "eval", 1: "test"}.get(int(digest, 16) % _PARTS, "train")


def _papers(place: int, goal: Goal) -> str:
    return "test" if place < 500 else "train"


def _upstream(place: int, goal: Goal) -> str:
    return "test" if place < 500 else "eval" if place < 1500 else "train"


RULES: dict[Rule, Callable[[int, Goal], str]] = {
    "by_product": _by_product,
    "papers": _papers,
    "upstream": _upstream,
}


def assign_splits(goals: Sequence[Goal], rule: Rule = "by_product") -> list[Goal]:
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
    return [replace(goal, split=RULES[rule](place, goal)) for place, goal in enumerate(goals)]


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


def overlaps(goals: Iterable[Goal]) -> list[Overlap]:
    """Measures every held-out split that has goals against the train split."""
    goals = list(goals)
    train = [goal for goal in goals if goal.split == "train"]
    products, sentences = {goal.asin for goal in train}, {goal.instruction for goal in train}
    measured = []
    for split in SPLITS[1:]:
        held_out = [goal for goal in goals if goal.split == split]
        if held_out:
            own = {goal.asin for goal in held_out}
            measured.append(
                Overlap(
                    split=split,
                    goals=len(held_out),
                    products=len(own),
                    seen_products=len(own & products),
                    goals_of_seen=sum(goal.asin in products for goal in held_out),
                    seen_sentences=sum(goal.instruction in sentences for goal in held_out),
                )
            )
    return measured


def split_report(goals: Sequence[Goal]) -> str:
    """Describes the splits in lines of text: sizes, and what each held-out one shares with training."""
    sizes = Counter(goal.split for goal in goals)
    counts = ", ".join(f"{sizes[split]} {split}" for split in SPLITS if sizes[split])
    products = Counter(goal.asin for goal in goals)
    largest = sum(count for _, count in products.most_common(5))
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
