"""The reward: every published case, numbers worked by hand, and what must always hold."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.base import EnvError
from envs.webshop.goals import NO_LIMIT, Goal
from envs.webshop.parity import run_parity
from envs.webshop.reward import reward
from tests.envs.webshop.small_shop import product

MUG = product("B000000001", "Blue Stone Mug")
GOAL = Goal(
    id="g",
    split="train",
    asin="B000000001",
    instruction="",
    attributes=("hand made",),
    options=(("color", "red"), ("size", "small")),
    price_limit=20.0,
    category="garden",
    product_category="Home › Kitchen › Mugs",
    query="mugs",
    nouns=("stone", "mug"),
)


def worth(chosen=None, *, price=12.5, bought=MUG, **goal):
    return reward(bought, replace(GOAL, **goal), price, chosen or {})


@pytest.mark.parametrize(
    ("chosen", "price", "total"),
    [
        ({"color": "red", "size": "small"}, 12.5, 1.0),
        ({"color": "red", "size": "small"}, 20.0, 1.0),  # the limit itself is within
        ({"color": "red", "size": "small"}, 20.01, 3 / 4),
        ({"color": "red"}, 12.5, 3 / 4),
        ({}, 12.5, 2 / 4),
        ({}, 30.0, 1 / 4),
        ({"color": "blue", "size": "x-large"}, 12.5, 2 / 4),
        ({"trim": "red", "cut": "small"}, 12.5, 1.0),  # which option has the value does not matter
    ],
)
def test_a_share_of_what_was_asked_for(chosen, price, total):
    assert worth(chosen, price=price).total == total


@pytest.mark.parametrize(
    ("wanted", "chosen", "met"),
    [
        (("color", "red"), "red", 1),
        (("color", "red"), "dark red", 0),  # "dark" comes before "red" in the list of colours
        (("color", "dark red"), "dark", 1),  # a pair keeps its text unless all of the value is a colour
        (("color", "dark blue"), "color", 1),  # so its name is text to match
        ("dark blue", "color", 0),
        ("dark pink", "dark red", 1),  # both are "dark"
        ("dark blue", "dark red", 0),  # one is "blue", the other "dark"
        (("color", "colored"), "red", 0),
        ("colored", "red", 1),  # "red" is in "colored"
        (("size", "x-large"), "large", 1),  # all words of one are in the other
        ("7.5 wide", "7.5", 1),
        ("size 8", "size 9", 0),  # 83 of 100, not above 85
    ],
)
def test_peculiarities_of_options(wanted, chosen, met):
    made = worth({"any": chosen}, options=(wanted,))
    assert (made.r_option, made.options) == (float(met), 1)


def test_one_choice_can_meet_several_wishes():
    made = worth({"color": "red"}, options=("red", "dark red", "reddish", "red wine"))
    assert made.r_option == 3 / 4  # "dark red" counts as dark


@pytest.mark.parametrize(
    ("attribute", "met"),
    [
        ("hand made", True),
        ("made hand", True),  # words in another order
        ("dishwasher safe", True),
        ("fired twice", True),  # in the bullets
        ("twice easy", True),  # across two bullets, joined by a space
        ("keeps tea warm", True),  # in the description
        ("stone mug", True),  # in the title
        ("leak proof", False),
    ],
)
def test_attributes_are_looked_for_in_the_texts_as_well(attribute, met):
    assert worth(attributes=(attribute,)).r_att == float(met)


@pytest.mark.parametrize(
    ("bought", "wanted", "elsewhere", "r_type", "title_score"),
    [
        (("stone", "mug"), ("stone", "mug"), True, 1.0, 1.0),
        (("cup",), ("stone", "mug"), False, 0.0, 0.0),  # nothing in common counts more than a match
        (("mug",), ("mug", "mug", "mug"), True, 1.0, 1 / 3),  # wanted nouns count with repeats below the line
        (("mug",), ("mug", *"abcd"), True, 0.5, 0.2),
        (("mug",), ("mug", *"abcd"), False, 1.0, 0.2),
        (("mug",), ("mug", *"abcdefghij"), False, 0.1, 1 / 11),
        (("mug",), (), True, 0.5, 0.2),
        ((), (), False, 1.0, 0.2),
    ],
)
def test_kind_of_product(bought, wanted, elsewhere, r_type, title_score):
    other = {"query": "tents", "product_category": "Outdoor › Tents"} if elsewhere else {}
    made = worth(bought=replace(MUG, nouns=bought, **other), nouns=wanted)
    assert (made.r_type, made.title_score) == (r_type, title_score)
    assert made.total == pytest.approx(r_type * 2 / 4)


@pytest.mark.parametrize(
    ("path", "match"),
    [
        ("Mugs › Kitchen", True),
        ("Home", False),
        ("Home › Home", False),
        (" Home ›  Mugs ", True),
        ("", False),
    ],
)
def test_two_parts_of_the_path_make_a_category(path, match):
    assert worth(bought=replace(MUG, product_category=path)).category_match is match


def test_parts_under_their_published_names():
    info = worth({"color": "red"}).info()
    assert info == {
        "r_type": 1.0,
        "r_att": 1.0,
        "w_att": 1 / 4,
        "query_match": True,
        "category_match": True,
        "title_score": 1.0,
        "r_option": 1 / 2,
        "w_option": 2 / 4,
        "r_price": True,
        "w_price": 1 / 4,
    }
    assert not {"r_option", "w_option"} & worth(options=()).info().keys()


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ({"attributes": ()}, "no attribute"),
        ({"price_limit": 0.0}, "must be positive, got 0.0"),
        ({"price": None}, "no price"),
    ],
)
def test_what_has_no_reward_is_an_error(fault, message):
    with pytest.raises(EnvError, match=message):
        worth(**fault)


WORDS = st.sampled_from(["red", "dark red", "x-large", "large", "größe", "7.5 wide", "12 oz", "(", "tan"])


@given(
    st.dictionaries(st.sampled_from("abc"), WORDS),
    st.lists(st.one_of(WORDS, st.tuples(st.just("color"), WORDS)), max_size=3),
    st.lists(WORDS, min_size=1, max_size=3),
    st.floats(0, 1e6),
)
def test_laws(chosen, options, attributes, price):
    made = worth(chosen, price=price, options=tuple(options), attributes=tuple(attributes))
    assert 0.0 <= made.total <= 1.0
    info = made.info()
    assert info["w_att"] + info.get("w_option", 0) + info["w_price"] == pytest.approx(1)
    shares = info["r_att"] * info["w_att"] + info.get("r_option", 0) * info.get("w_option", 0)
    assert made.total == pytest.approx(made.r_type * (shares + info["r_price"] * info["w_price"]))
    more = worth(chosen | {"new": "red"}, price=price, options=tuple(options), attributes=tuple(attributes))
    assert more.total >= made.total  # what is selected besides never hurts
    cheap = worth(chosen, price=0.0, options=tuple(options), attributes=tuple(attributes))
    assert cheap.total >= made.total


def test_no_limit_is_met_by_any_price():
    assert worth(price=999_999.0, price_limit=NO_LIMIT).r_price


def test_published_cases_agree(shared):
    """396 purchases, 3 sets of goals, 28 walks in 2 forms."""
    result = run_parity(shared / "golden" / "webshop")
    assert result.failures == ()
    assert (result.passed, result.steps) == (396 + 3 + 2 * 28, 394)
