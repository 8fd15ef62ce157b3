"""The buyer: it reads what a page says, buys what was asked for nearly always, and says what it is after."""

from __future__ import annotations

import inspect
import random
import re
from dataclasses import replace

import pytest

from envs.base import Observation
from envs.webshop import WebshopEnv, open_shop
from envs.webshop.catalogue import Catalogue
from envs.webshop.demonstrate import demonstrate
from envs.webshop.expert import Buyer
from envs.webshop.generate import NOUN_SOURCE, generate_products
from envs.webshop.reading import Offer, parse_wish, read_page, stem
from tests.envs.webshop.small_shop import goal_of, small_shop


@pytest.fixture(scope="module")
def catalogue():
    return Catalogue.from_products(generate_products(400, seed=3), noun_source=NOUN_SOURCE)


@pytest.fixture(scope="module")
def shop(catalogue):
    return open_shop(catalogue)


def rates(shop, count=80, **options):
    """Success rate, mean score and mean steps over the first goals."""
    walks = [demonstrate(shop, goal, seed=i, **options) for i, goal in enumerate(shop.goals[:count])]
    ended = [walk.outcome for walk in walks]
    return (
        sum(outcome.success for outcome in ended) / len(ended),
        sum(outcome.score for outcome in ended) / len(ended),
        sum(len(walk.steps) for walk in walks) / len(walks),
    )


@pytest.mark.parametrize(
    ("instruction", "words", "options", "limit"),
    [
        (
            "Find me hand made mugs with color: blue, and size: 7.5 wide, and price lower than 30.00 dollars",
            ("hand", "made", "mugs"),
            {"color": "blue", "size": "7.5 wide"},
            30.0,
        ),
        (
            "Find me women's shoes with steel toe with fit: red with dots, and price lower than 9.00 dollars",
            ("women's", "shoes", "steel", "toe"),
            {"fit": "red with dots"},
            9.0,
        ),
        ("Find me mugs with handle", ("mugs", "handle"), {}, float("inf")),
        ("i am looking for a Mug in red, please", ("mug", "red"), {}, float("inf")),
    ],
)
def test_instructions_are_understood(instruction, words, options, limit):
    wish = parse_wish(instruction)
    assert (wish.words, wish.options, wish.limit) == (words, options, limit)


def test_words_without_endings():
    assert [stem(word) for word in ("mugs", "candies", "glass", "women's", "gas", "ties")] == (
        ["mug", "candy", "glass", "women", "gas", "tie"]
    )


@pytest.mark.parametrize("show_instruction", [True, False])
def test_pages_are_read(show_instruction):
    env = WebshopEnv(small_shop(), max_steps=30, show_instruction=show_instruction)
    goal = goal_of(env.shop, "B000000001")
    assert read_page(env.reset(goal)).place == "start"
    results = read_page(env.step("search[travel stone]").observation)
    assert (results.place, results.number, results.total) == ("results", 1, 2)
    assert set(results.offers) == {
        Offer("B000000001", "Blue Stone Mug", 12.5, 12.5),
        Offer("B000000002", "Travel Mug", 20.0, 60.0),
    }
    item = read_page(env.step("click[b000000001]").observation)
    assert item.options == (("color", ("blue", "red")), ("size", ("small", "x-large")))
    assert read_page(env.step("click[features]").observation).text == "HAND MADE - fired twice Easy to clean"
    env.step("search[gift]")
    options = read_page(env.step("click[b000000003]").observation).options
    assert options == (("color", ("red", "größe")), ("trim", ("red", '12" wide')))
    env.step("search[tents]")
    env.step("click[b000000006]")
    assert read_page(env.step("click[buy now]").observation).place == "done"


def test_another_form_of_page_is_refused():
    with pytest.raises(ValueError, match="mode 'text'"):
        read_page(Observation("[button] Search [button_]\n", "", ()))


def test_a_script():
    env = WebshopEnv(small_shop())
    goal = goal_of(env.shop, "B000000001")
    expert = Buyer()
    expert.reset(goal.instruction)
    observation, script = env.reset(goal), []
    for _ in range(15):
        action = expert.act(observation)
        outcome = env.step(action)
        observation = outcome.observation
        script.append((expert.thought, action))
        if outcome.done:
            break
    assert (
        script
        == [
            ("find hand made mugs blue small", "search[hand made mugs blue small]"),
            ("look at B000000001", "click[b000000001]"),
            ("read features of B000000001", "click[features]"),
            ("go back to B000000001", "click[< prev]"),
            ("choose blue", "click[blue]"),
            ("choose small", "click[small]"),
            ("buy B000000001", "click[buy now]"),
        ][: len(script)]
    )
    assert outcome.success


def test_buys_nearly_always_what_was_asked_for(shop, catalogue):
    success, score, steps = rates(shop)
    assert success >= 0.85 and score >= 0.93 and steps <= 12
    success, score, steps = rates(open_shop(catalogue, kind="human"))
    assert success >= 0.7 and score >= 0.85 and steps <= 9


def test_noise_makes_it_hasty(shop):
    careful, _, long = rates(shop, 60)
    hasty, _, short = rates(shop, 60, noise=1.0)
    assert hasty < careful and short < long


def test_mistakes_are_marked_and_survived(shop):
    walks = [demonstrate(shop, goal, seed=i, mistakes=0.2) for i, goal in enumerate(shop.goals[:60])]
    steps = [step for walk in walks for step in walk.steps]
    share = sum(step.mistake for step in steps) / len(steps)
    assert 0.12 < share < 0.28
    assert sum(walk.outcome.success for walk in walks) >= 30
    assert not any(step.mistake and step.action == "click[buy now]" for step in steps)
    assert not any(step.mistake for step in demonstrate(shop, shop.goals[0]).steps)


def test_the_same_seed_gives_the_same_walk(shop):
    state = random.getstate()
    walks = [
        demonstrate(shop, shop.goals[4], seed=seed, noise=0.5, mistakes=0.3) for seed in (1, 1, 2, 3, 4, 5)
    ]
    assert random.getstate() == state
    assert walks[0] == walks[1]
    assert len({tuple(step.action for step in walk.steps) for walk in walks}) > 2


def test_uses_only_what_it_was_shown(shop):
    """Its interface takes texts; equal texts give equal actions, whatever the goal behind them."""
    for method in (Buyer.__init__, Buyer.reset, Buyer.act, Buyer.observe):
        names = set(inspect.signature(method).parameters)
        assert names <= {"self", "seed", "noise", "max_steps", "instruction", "observation", "action"}
    for goal in shop.goals[:20]:
        steps = demonstrate(shop, goal, seed=2, noise=0.3).steps
        copy = Buyer(seed=2, noise=0.3)
        copy.reset(goal.instruction)
        assert [copy.act(step.observation) for step in steps] == [step.action for step in steps]


def test_clicks_only_what_the_page_has(shop):
    for goal in shop.goals[:40]:
        for step in demonstrate(shop, goal, show_instruction=False).steps:
            assert step.action in step.observation.admissible or step.action.startswith("search[")


def test_thoughts_are_of_one_form(shop):
    form = re.compile(
        r"find .+|look (further|elsewhere)|(look at|go back to|buy) GN\d{8}"
        r"|read (features|description) of GN\d{8}|leave GN\d{8}: (no .+|too little said)|choose .+"
    )
    for goal in shop.goals[:60]:
        for step in demonstrate(shop, goal, noise=0.2).steps:
            assert form.fullmatch(step.thought), step.thought


def test_goes_on_from_anywhere(shop):
    """After steps of any sort it still chooses, and mostly still buys."""
    rng, bought = random.Random(0), 0
    for goal in shop.goals[:40]:
        env, expert = WebshopEnv(shop, max_steps=40), Buyer(max_steps=40)
        observation, outcome = env.reset(goal), None
        expert.reset(goal.instruction)
        for _ in range(8):
            action = rng.choice([*observation.admissible, "search[<r>]", "click[features]", "junk"])
            if action == "click[buy now]":
                continue
            outcome = env.step(action)
            observation = outcome.observation
            expert.observe(action, observation)
        while not outcome.done:
            outcome = env.step(expert.act(outcome.observation))
        bought += outcome.terminated
    assert bought >= 38


@pytest.mark.parametrize("kind", ["synthetic", "human"])
def test_peculiar_pages_do_not_stop_it(kind):
    small = small_shop(kind=kind)
    for goal in small.goals:
        walk = demonstrate(small, goal, mistakes=0.2)
        assert walk.outcome.done and len(walk.steps) <= 15


@pytest.mark.parametrize(
    ("options", "message"), [({"noise": 1.5}, r"noise must be in \[0, 1\]"), ({"max_steps": 2}, "at least 3")]
)
def test_faulty_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        Buyer(**options)


def test_act_before_reset_is_named(shop):
    with pytest.raises(RuntimeError, match="before reset"):
        Buyer().act(WebshopEnv(shop).reset(shop.goals[0]))


def test_it_buys_as_well_where_products_are_called_by_rank(shop):
    by_rank = replace(shop, ids="rank", results_a_page=4)
    by_id = replace(shop, results_a_page=4)
    for goal in shop.goals[:30]:
        walks = [demonstrate(world, goal, seed=3, noise=0.3) for world in (by_id, by_rank)]
        assert walks[0].outcome.score == walks[1].outcome.score
        assert len(walks[0].steps) == len(walks[1].steps)
