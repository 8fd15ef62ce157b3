"""Goals made on access: equal to all of them made at once."""

from __future__ import annotations

import hashlib
import itertools
import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.webshop.catalogue import Catalogue
from envs.webshop.draws import make_draws
from envs.webshop.goals import KINDS, NO_LIMIT
from envs.webshop.product import HumanInstruction, ShopError
from envs.webshop.shop import open_shop
from envs.webshop.splits import SPLITS
from tests.envs.webshop.small_shop import GENERATED, HELD, PRODUCTS, product, small_catalogue, small_shop

ODD = [
    product("A1", "No combination", options={"size": ()}, instruction="x", instruction_attributes=("y",)),
    product("A2", "Dear", prices=(990.0, 5000.0), instruction="Find me z", instruction_attributes=("y",)),
    product(
        "A3", "Talked of", human=tuple(HumanInstruction(f"{n}..", ("y",) * (n % 3), ()) for n in range(7))
    ),
]


def all_at_once(products, kind, seed, order):
    """The published procedure: id, instruction, attributes, options, limit of every goal; and the prices."""
    rng = random.Random(seed)
    drawn = {p.asin: rng.uniform(*p.prices) for p in products if len(p.prices) == 2}
    goals = []
    for p in products:
        price = drawn.get(p.asin, p.prices[0] if p.prices else 100.0)
        names = sorted(p.options)
        asked = []
        if kind == "human":
            asked = [[(n, w.text.strip("."), w.attributes, w.options)] for n, w in enumerate(p.human)]
            asked = [group for group in asked if group[0][2]]
        elif p.instruction is not None:
            combinations = itertools.product(*(p.options[name] for name in names))
            chosen = [tuple(zip(names, values, strict=True)) for values in combinations]
            texts = [", and ".join(f"{name}: {value}" for name, value in pairs) for pairs in chosen]
            asked = [
                [
                    (n, p.instruction + (f" with {text}" if text else ""), p.instruction_attributes, pairs)
                    for n, (text, pairs) in enumerate(zip(texts, chosen, strict=True))
                ]
            ]
        for group in asked:
            tens = [ten for ten in range(10, 1000, 10) if ten > price][:4]
            limit = float(max(rng.sample(tens, 2))) if len(tens) > 1 else NO_LIMIT
            end = "" if limit == NO_LIMIT else f", and price lower than {limit:.2f} dollars"
            goals += [(f"{kind}/{p.asin}/{n}", text + end, a, o, limit) for n, text, a, o in group]
    random.Random(order).shuffle(goals)
    return goals, drawn


@pytest.mark.parametrize("products", [GENERATED, list(PRODUCTS), ODD], ids=["generated", "small", "odd"])
@pytest.mark.parametrize("kind", KINDS)
def test_goals_are_those_made_all_at_once(products, kind):
    shop = open_shop(small_catalogue(products), kind=kind, seed=5, order=8)
    goals, drawn = all_at_once(products, kind, seed=5, order=8)
    made = [(g.id, g.instruction, g.attributes, g.options, g.price_limit) for g in shop.goals]
    assert made == goals
    assert shop.drawn == drawn and len(shop.drawn) == len(drawn)
    for p in products:
        assert (p.asin in shop.drawn) == (p.asin in drawn)


@pytest.mark.parametrize(
    ("kind", "sizes", "digest"),
    [
        ("synthetic", [213, 13, 17], "7adc4e1be7bc49c7a76405947e1f9a0d"),
        ("human", [28, 7, 5], "6a4654500ba83c259baee7bd2316fbe4"),
    ],
)
def test_seeds_always_decide_the_same(kind, sizes, digest):
    """Recorded when all goals were made at once. If this has to change, raise `draws.VERSION`."""
    shop = open_shop(HELD, kind=kind, seed=7)
    told = "".join(map(repr, shop.goals)) + repr(sorted(shop.drawn.items()))
    assert [len(shop.of_split(split)) for split in SPLITS] == sizes
    assert hashlib.sha256(told.encode()).hexdigest()[:32] == digest


SHOP = small_shop()
GOALS = list(SHOP.goals)
BOUND = st.none() | st.integers(-50, 50)


@settings(deadline=None)
@given(BOUND, BOUND, st.none() | st.integers(-5, 5).filter(bool))
def test_a_slice_is_what_a_list_would_give(start, stop, step):
    part = SHOP.goals[start:stop:step]
    assert list(part) == GOALS[start:stop:step]
    assert len(part) == len(GOALS[start:stop:step])
    assert part == SHOP.goals[start:stop:step]


def test_goals_are_a_sequence():
    goals = SHOP.goals
    assert goals[-1] == GOALS[-1] and goals[np.int64(3)] == GOALS[3]
    assert goals.index(GOALS[9]) == 9 and GOALS[9] in goals and replace(GOALS[9], id="") not in goals
    assert goals != goals[1:] and goals != goals[::-1] and goals != GOALS
    assert not goals[5:5] and list(reversed(goals)) == GOALS[::-1]
    assert sorted(goals.in_load_order(), key=GOALS.index) == GOALS
    for at in (len(GOALS), -len(GOALS) - 1):
        with pytest.raises(IndexError):
            goals[at]
    for split in {goal.split for goal in GOALS}:
        assert list(SHOP.of_split(split)[:3]) == [goal for goal in GOALS if goal.split == split][:3]


@pytest.mark.parametrize("products", [GENERATED, list(PRODUCTS), ODD], ids=["generated", "small", "odd"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_goals_are_called_is_known_before_they_are_made(products, kind):
    class Unread(Catalogue):
        def __getitem__(self, asin):
            raise AssertionError("a product was looked at to name its goals")

    shop = open_shop(small_catalogue(products), kind=kind, seed=5, order=8)
    expected = [(goal.id, goal.family) for goal in shop.goals]
    shop.goals._catalogue.__class__ = Unread
    roster = shop.goals.roster()
    assert roster.size == len(expected)
    assert list(zip(*roster.names(), strict=True)) == expected
    assert set(shop.goals.families) == {family for _, family in expected}
    some = sorted({len(expected) - 1, 0}, reverse=True)
    assert list(zip(*roster.take(some).roster().names(), strict=True)) == [expected[at] for at in some]
    assert len(roster.take([])) == 0


def test_too_many_combinations_are_named_at_once():
    options = {f"option {i}": tuple(map(str, range(50))) for i in range(20)}
    endless = product("B1", "Mug", options=options, instruction="x", instruction_attributes=("y",))
    with pytest.raises(ShopError, match="product 'B1' alone has 9536743164062500000000000000000000, one for"):
        make_draws(small_catalogue([endless]), "synthetic", 0, 233)
