"""What a purchase is worth: the published reward, with its peculiarities (docs/webshop.md lists them)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from envs.base import EnvError
from envs.webshop.goals import Goal, Option
from envs.webshop.product import Product
from envs.webshop.similar import token_set_ratio

# Above this two texts count as the same.
_ALIKE = 85

# Colours in the order of the published normalisation: the first one found in a value stands for the value.
_COLOR_WORDS = """
alabaster apricot aqua ash asphalt azure banana beige black blue blush bordeaux bronze brown
burgundy camel camo caramel champagne charcoal cheetah chestnut chocolate christmas coffee cognac
copper coral cranberry cream crystal dark denim eggplant elephant espresso fuchsia gold granite
grape graphite grass gray green grey heather indigo ivory ivy khaki lavender lemon leopard light
lilac lime magenta maroon mauve merlot midnight mint mocha multicolor mushroom mustard natural navy
nude olive orange peach pewter pink plum purple rainbow red rose royal rust sand sapphire seashell
silver skull slate steel stone stonewash sunflower tan taupe teal tiger turquoise violet walnut
wheat white wine yellow
"""
_COLORS = tuple(_COLOR_WORDS.split())


@dataclass(frozen=True, slots=True)
class Reward:
    """The reward of a purchase and what it is made of.

    Attributes:
        total: r_type · (attributes met + options met + price met) / (attributes + options + 1), in [0, 1].
        r_type: Whether it is the kind of thing asked for: 1, 0.5, 0.1 or 0.
        query_match: Both products were found by the same query.
        category_match: The two category paths share at least two parts.
        title_score: Share of the nouns of the wanted title that are in the bought one's.
        r_att: Share of the attributes met.
        r_option: Share of the options met; None where none is asked for.
        r_price: Whether the price is within the limit.
        attributes, options: How many of either are asked for.
    """

    total: float
    r_type: float
    query_match: bool
    category_match: bool
    title_score: float
    r_att: float
    r_option: float | None
    r_price: bool
    attributes: int
    options: int

    def info(self) -> dict[str, float | bool]:
        """Returns the parts under their published names, with the weights `w_…` of the three shares."""
        terms = self.attributes + self.options + 1
        parts: dict[str, float | bool] = {
            "r_type": self.r_type,
            "r_att": self.r_att,
            "w_att": self.attributes / terms,
            "query_match": self.query_match,
            "category_match": self.category_match,
            "title_score": self.title_score,
        }
        if self.r_option is not None:
            parts |= {"r_option": self.r_option, "w_option": self.options / terms}
        return parts | {"r_price": self.r_price, "w_price": 1 / terms}


def reward(product: Product, goal: Goal, price: float | None, chosen: Mapping[str, str]) -> Reward:
    """Values a purchase.

    Args:
        product: What was bought.
        goal: What was asked for.
        price: Dollars the reward reckons with; for a range this is not what the page shows.
        chosen: Option name → selected value.

    Raises:
        EnvError: the goal asks for no attribute or has no positive price limit, or there is no price; the
            published code fails on these as well.
    """
    _check(goal, price)
    query_match = product.query == goal.query
    category_match = len(_parts(product.product_category) & _parts(goal.product_category)) >= 2
    title_score = _title_score(product.nouns, goal.nouns)
    r_type = _r_type(query_match or category_match, title_score)
    attributes = sum(_has_attribute(product, wanted) for wanted in goal.attributes)
    options = _options_met(chosen.values(), goal.options)
    r_price = price <= goal.price_limit
    terms = len(goal.attributes) + len(goal.options) + 1
    return Reward(
        total=(attributes + options + r_price) / terms * r_type,
        r_type=r_type,
        query_match=query_match,
        category_match=category_match,
        title_score=title_score,
        r_att=attributes / len(goal.attributes),
        r_option=options / len(goal.options) if goal.options else None,
        r_price=r_price,
        attributes=len(goal.attributes),
        options=len(goal.options),
    )


def _check(goal: Goal, price: float | None) -> None:
    if not goal.attributes:
        raise EnvError(f"goal {goal.id!r} asks for no attribute, so it has no reward: leave it out.")
    if goal.price_limit <= 0:
        raise EnvError(f"goal {goal.id!r}: the price limit must be positive, got {goal.price_limit}.")
    if price is None:
        raise EnvError(f"goal {goal.id!r}: the product bought has no price; give 100.0 where none is known.")


def _parts(path: str) -> set[str]:
    return {part.strip() for part in path.split("›")}


def _title_score(bought: Iterable[str], wanted: tuple[str, ...]) -> float:
    # The wanted nouns count with repeats below the line and without above it, as published.
    return len(set(bought) & set(wanted)) / len(wanted) if wanted else 0.2


def _r_type(match: bool, title_score: float) -> float:
    if title_score == 0.0:
        return 0.0
    if title_score < 0.1:
        return 0.1
    return 1.0 if match or title_score > 0.2 else 0.5


def _has_attribute(product: Product, wanted: str) -> bool:
    if any(token_set_ratio(attribute, wanted) > _ALIKE for attribute in product.attributes):
        return True
    texts = (product.title, " ".join(product.bullets), product.description)
    return any(wanted in text.lower() for text in texts)


def _options_met(chosen: Iterable[str], wanted: Iterable[Option]) -> int:
    values = [_comparable(value) for value in chosen]
    return sum(any(token_set_ratio(value, _comparable(goal)) > _ALIKE for value in values) for goal in wanted)


def _comparable(option: Option) -> str:
    """Returns the colour that stands for an option, else its text.

    `in` is meant as it is: a colour may be anywhere inside a value, but must be the whole value of a pair. A
    pair without one is compared as Python prints it, so that its name is part of the text.
    """
    return next((color for color in _COLORS if color in option), str(option))
