"""Goals, prices, limits and splits: from seeds alone, and disjoint where they should be."""

from __future__ import annotations

import random

import pytest

from commands.data.webshop import report_splits
from envs.webshop.catalogue import Catalogue
from envs.webshop.demonstrate import demonstrate
from envs.webshop.goals import NO_LIMIT
from envs.webshop.parity import count_goals, open_folder
from envs.webshop.product import ShopError
from envs.webshop.shop import open_shop
from envs.webshop.splits import RULES, SPLITS, assign_splits, overlaps, split_report
from envs.webshop.store import write_store
from tests.envs.webshop.small_shop import PRODUCTS, goal_of, product, small_catalogue, small_shop


def many(n=3000):
    """So many products with one goal each; every tenth has 30."""
    options = {"size": tuple(f"size {i}" for i in range(30))}
    wanted = {"instruction": "Find me mugs", "instruction_attributes": ("hand made",)}
    return small_catalogue(
        [product(f"B{i:09d}", f"Mug {i}", options={} if i % 10 else options, **wanted) for i in range(n)]
    )


def test_one_synthetic_goal_for_every_combination():
    shop = small_shop()
    of_mug = [goal for goal in shop.goals if goal.asin == "B000000001"]
    assert {goal.options for goal in of_mug} == {
        (("color", color), ("size", size)) for color in ("blue", "red") for size in ("small", "x-large")
    }
    assert len(shop.goals) == 4 + 1 + 4 * 2 * 4 + 1
    assert len({goal.id for goal in shop.goals}) == len(shop.goals)
    assert len({goal.price_limit for goal in of_mug}) == 1  # one limit a product
    travel = goal_of(shop, "B000000002")
    assert travel.id == "synthetic/B000000002/0" and travel.family == "garden"
    assert travel.instruction.startswith("Find me leak proof mugs, and price lower than ")


def test_human_goals_have_plain_options_and_attributes():
    (goal,) = small_shop(kind="human").goals
    assert goal.id == "human/B000000001/0"
    assert goal.options == ("red",)
    assert goal.instruction.startswith("i want a hand made mug in red, and price lower than ")


def test_limits_lie_among_the_next_four_tens():
    limits = set()
    for seed in range(60):
        goal = goal_of(small_shop(seed=seed), "B000000001")  # costs 12.50
        limits.add(goal.price_limit)
        assert f"lower than {goal.price_limit:.2f} dollars" in goal.instruction
    assert limits == {30.0, 40.0, 50.0}  # the larger of two of 20, 30, 40, 50


def test_a_dear_product_has_no_limit():
    goal = goal_of(small_shop(), "B000000004")  # only 990 is above its price
    assert goal.price_limit == NO_LIMIT
    assert goal.instruction == "Find me dishwasher safe teapots"


def test_prices():
    shop = small_shop(seed=3)
    assert shop.price("B000000001") == 12.5
    assert shop.price("B000000003") == 100.0  # none known
    assert 20.0 <= shop.price("B000000002") <= 60.0
    assert shop.price("B000000002") != small_shop(seed=4).price("B000000002")


def test_everything_comes_from_the_seeds():
    state = random.getstate()
    shop = small_shop(seed=7)
    assert random.getstate() == state
    assert (shop.goals, shop.drawn) == (small_shop(seed=7).goals, small_shop(seed=7).drawn)
    other = small_shop(seed=8)
    assert [goal.id for goal in other.goals] == [goal.id for goal in shop.goals]  # the order has its own seed
    assert other.goals != shop.goals
    assert [goal.id for goal in small_shop(order=1).goals] != [goal.id for goal in shop.goals]


def test_a_shop_in_a_folder_is_the_shop_in_memory(tmp_path):
    write_store(tmp_path / "shop", PRODUCTS, noun_source="by hand")
    stored, held = open_shop(Catalogue.open(tmp_path / "shop")), small_shop()
    assert (stored.goals, stored.drawn) == (held.goals, held.drawn)
    for goal in held.goals[::5]:
        assert demonstrate(stored, goal, mistakes=0.2) == demonstrate(held, goal, mistakes=0.2)


def test_the_command_reports_every_rule(tmp_path, capsys):
    write_store(tmp_path / "shop", many(1200).products(), noun_source="by hand")
    report_splits(tmp_path / "shop")
    out = capsys.readouterr().out
    assert [line for line in out.splitlines() if not line.startswith(" ")] == (
        [f"synthetic, rule {rule}" for rule in RULES] + ["human: no instructions"]
    )
    assert "test: 0 of " in out and "are of products trained on" in out


def test_splits_by_product_share_no_product():
    shop = open_shop(many())
    of = {split: {goal.asin for goal in shop.of_split(split)} for split in SPLITS}
    assert not of["train"] & of["test"] and not of["train"] & of["eval"] and not of["eval"] & of["test"]
    assert all(300 < len(of[split]) < 450 for split in ("eval", "test"))
    assert [o.goals_of_seen for o in overlaps(shop.goals)] == [0, 0]


def test_a_product_stays_in_its_split():
    """Whatever else is in the catalogue, and in whichever order."""
    large, small = open_shop(many(900), order=1), open_shop(many(400))
    split_of = {goal.asin: goal.split for goal in large.goals}
    assert all(goal.split == split_of[goal.asin] for goal in small.goals)


@pytest.mark.parametrize(("rule", "sizes"), [("papers", (500, 0)), ("upstream", (500, 1000))])
def test_splits_by_place(rule, sizes):
    shop = open_shop(many(400), rule=rule)
    splits = [goal.split for goal in shop.goals]
    test, evaluation = sizes
    rest = len(splits) - test - evaluation
    assert splits == ["test"] * test + ["eval"] * evaluation + ["train"] * rest


def test_report_says_what_is_shared():
    shop = open_shop(many(400), rule="papers")
    (found,) = overlaps(shop.goals)
    train = [goal for goal in shop.goals if goal.split == "train"]
    test = shop.of_split("test")
    assert found.goals_of_seen == sum(any(g.asin == t.asin for t in train) for g in test)
    assert found.seen_sentences == sum(any(g.instruction == t.instruction for t in train) for g in test)
    text = split_report(shop.goals)
    assert f"{len(shop.goals)} goals of 400 products: {len(train)} train, 500 test" in text
    assert f"{found.goals_of_seen} of 500 goals" in text


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: small_shop(kind="robot"), "synthetic or human, got 'robot'"),
        (lambda: small_shop(rule="mine"), "no split rule 'mine'; rules: by_product, papers, upstream"),
        (lambda: small_shop().of_split("valid"), "no split 'valid'; splits: train, eval, test"),
        (lambda: open_shop(small_catalogue(PRODUCTS[4:])), "0 synthetic goals in 22 products"),
        (lambda: small_shop(rule="papers").of_split("train"), "0 of 38 goals are in split 'train'"),
        (
            lambda: open_shop(small_catalogue([product("B1", "Mug", instruction="Find me mugs")])),
            "'B1' has an instruction without instruction_attributes",
        ),
    ],
)
def test_faults_are_named(call, message):
    with pytest.raises(ShopError, match=message):
        call()


def test_real_products_give_the_published_figures(shared):
    folder = shared / "data" / "webshop"
    assert count_goals(folder) == (1000, 6910, 13)
    catalogue = open_folder(folder)
    goals = open_shop(catalogue, seed=1).goals
    assert len({goal.asin for goal in goals}) == 415
    assert 6890 < len({goal.instruction for goal in goals}) <= 6905  # 6901 with the limits of one seed
    assert sum(not goal.options for goal in goals) == 185
    assert sum(goal.price_limit == NO_LIMIT for goal in goals) == 15
    (papers,) = overlaps(assign_splits(goals, "papers"))
    assert (papers.goals, papers.goals_of_seen) == (500, 481)
    assert papers.seen_sentences < 5  # 1 with those
    assert [o.goals_of_seen for o in overlaps(assign_splits(goals, "by_product"))] == [0, 0]
    assert set(RULES) == {"by_product", "papers", "upstream"}
