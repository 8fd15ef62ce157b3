"""Generated shops: same seed same shop, every goal can be earned in full, and much like the published set."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from itertools import islice
from itertools import product as combinations
from pathlib import Path

import pytest

import envs.webshop.generate as module
from envs.webshop.catalogue import Catalogue
from envs.webshop.generate import NOUN_SOURCE, generate_products
from envs.webshop.reward import reward
from envs.webshop.shop import open_shop

BUTTONS = {
    "search",
    "back to search",
    "next >",
    "< prev",
    "description",
    "features",
    "reviews",
    "attributes",
    "buy now",
}


@pytest.fixture(scope="module")
def products():
    return list(generate_products(1000, seed=0))


@pytest.fixture(scope="module")
def catalogue(products):
    return Catalogue.from_products(products, noun_source=NOUN_SOURCE)


def test_same_seed_same_products_and_more_products_start_alike(products):
    assert list(generate_products(50, seed=0)) == products[:50]
    other = list(generate_products(50, seed=1))
    assert not {p.asin for p in other} & {p.asin for p in products}
    assert {p.title for p in other} != {p.title for p in products[:50]}
    assert list(islice(generate_products(10**8, seed=0), 5)) == products[:5]
    with pytest.raises(ValueError, match="n = 0"):
        next(generate_products(0, seed=0))


def test_difficulty_is_the_number_of_options_and_values():
    def values(difficulty):
        made = list(generate_products(300, seed=0, difficulty=difficulty))
        return [[len(values) for values in product.options.values()] for product in made]

    easy, middle, hard = values(0.0), values(0.4), values(1.0)
    assert {count for counts in easy for count in counts} == {1}
    assert max(count for counts in middle for count in counts) == 3
    assert max(count for counts in hard for count in counts) == 6
    assert sum(map(sum, easy)) < sum(map(sum, middle)) < sum(map(sum, hard))
    with pytest.raises(ValueError, match=r"difficulty must be in \[0, 1\], got 1.5"):
        next(generate_products(1, seed=0, difficulty=1.5))


def test_ids_are_ten_characters_and_differ():
    start = 10**8 - 50_000
    ids = {module._id(number) for number in range(start, start + 100_000)}
    assert len(ids) == 100_000
    assert all(len(name) == 10 and name.isalnum() and name.isupper() for name in ids)


@pytest.mark.parametrize("kind", ["synthetic", "human"])
@pytest.mark.parametrize("seed", [0, 3])
def test_buying_the_right_thing_earns_everything(catalogue, kind, seed):
    shop = open_shop(catalogue, kind=kind, seed=seed)
    for goal in shop.goals:
        chosen = {str(n): o if isinstance(o, str) else o[1] for n, o in enumerate(goal.options)}
        bought = reward(catalogue[goal.asin], goal, shop.price(goal.asin), chosen)
        assert bought.total == 1.0, goal


def test_every_option_value_can_be_earned():
    """Not only those that these products happen to have: some colour names hide in other words."""
    words = json.loads((Path(module.__file__).parent / "shop_words.json").read_text())
    (base,) = [p for p in generate_products(40, seed=0) if p.instruction][:1]
    (goal,) = [g for g in open_shop(Catalogue.from_products([base], noun_source=NOUN_SOURCE)).goals][:1]
    for group in words["groups"]:
        for name, listed in group["options"].items():
            for value in words["options"][listed]:
                assert value == value.lower().strip() and "/" not in value and "[" not in value
                for asked in ((name, value), value):
                    assert reward(base, replace(goal, options=(asked,)), 1.0, {name: value}).total == 1.0, (
                        asked
                    )


def test_no_value_reads_like_another_or_like_a_button(products):
    words = json.loads((Path(module.__file__).parent / "shop_words.json").read_text())
    for group in words["groups"]:
        values = [value for listed in group["options"].values() for value in words["options"][listed]]
        assert len(values) == len(set(values))
        assert not BUTTONS & set(values)
    for product in products:
        assert 0 <= len(list(combinations(*product.options.values()))) <= 36
        assert all(product.options.values())


def test_instructions_ask_for_what_the_product_has(products):
    for product in products:
        assert set(product.instruction_attributes) <= set(product.attributes)
        assert (product.instruction is None) == (not product.instruction_attributes)
        for written in product.human:
            assert written.attributes and set(written.attributes) <= set(product.attributes)
            assert set(written.options) <= {v for values in product.options.values() for v in values}
            for asked in (*written.attributes, *written.options, product.query):
                assert asked in written.text
            assert "{" not in written.text
        if product.instruction:
            assert all(
                asked in product.instruction for asked in (*product.instruction_attributes, product.query)
            )


def test_texts_are_filled_in_and_prices_are_as_displayed(products):
    for product in products:
        for text in (product.title, product.description, *product.bullets):
            assert text.strip() == text and "{" not in text and "  " not in text
        assert all(attribute in product.description for attribute in product.attributes)
        assert product.nouns and set(product.nouns) <= set(
            product.title.lower().replace(",", "").replace("-", " ").split()
        )
        assert product.price_text == (" to ".join(f"${p}" for p in product.prices) or "$100.0")
        assert list(product.prices) == sorted(product.prices)


def test_shares_are_near_the_published_ones(products):
    """Of the published 1,000: five categories, 93 price ranges, 415 instructions, 6,910 goals, 3.5 values."""
    assert {p.category for p in products} == {"beauty", "electronics", "fashion", "garden", "grocery"}
    assert min(Counter(p.category for p in products).values()) > 100
    assert 90 < sum(len(p.prices) == 2 for p in products) < 200
    assert 30 < sum(not p.prices for p in products) < 100
    assert 380 < sum(p.instruction is not None for p in products) < 520
    assert 3 < sum(len(v) for p in products for v in p.options.values()) / len(products) < 7
    shop = open_shop(Catalogue.from_products(products, noun_source=NOUN_SOURCE))
    assert 3000 < len(shop.goals) < 8000


def test_the_right_product_can_be_found(catalogue):
    shop = open_shop(catalogue, seed=0)
    goals = shop.goals[:200]
    by_title = sum(catalogue.search(catalogue[g.asin].title.lower().split(" "))[0] == g.asin for g in goals)
    assert by_title > 190
    first_page = sum(g.asin in catalogue.search(g.instruction.lower().split(" "), 10) for g in goals)
    assert 0.79 * len(goals) < first_page  # of the published set
