"""The environment: the contract, anchors, rewards, and a hundred thousand actions without a crash."""

from __future__ import annotations

import pickle
import random
from dataclasses import replace

import pytest

from envs.base import EnvError
from envs.checks import check_env
from envs.webshop import WebshopEnv
from envs.webshop.catalogue import Catalogue
from envs.webshop.shop import open_shop
from tests.envs.webshop.small_shop import PRODUCTS, goal_of, small_shop

SHOP = small_shop()
MUG = goal_of(SHOP, "B000000001")


def play(*actions, **options):
    """The last outcome of a walk, and its environment."""
    env = WebshopEnv(SHOP, **options)
    env.reset(MUG)
    return [env.step(action) for action in actions][-1], env


TO_THE_MUG = ("search[stone]", "click[b000000001]")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"mode": "text_rich", "anchor": "text", "show_attributes": True},
        {"anchor": "text", "show_instruction": False, "partial": True},
    ],
)
def test_conforms(options):
    goals = [MUG, goal_of(SHOP, "B000000003", 5)]
    check_env(lambda: WebshopEnv(SHOP, max_steps=9, **options), goals)


def test_a_purchase_that_meets_everything_is_success():
    outcome, env = play(*TO_THE_MUG, "click[blue]", "click[small]", "click[buy now]", reward=10.0)
    assert (outcome.success, outcome.score, outcome.reward) == (True, 1.0, 10.0)
    assert outcome.terminated and not outcome.truncated
    assert env.bought.info()["r_option"] == 1.0
    with pytest.raises(EnvError, match="over"):
        env.step("click[buy now]")


def test_a_purchase_that_meets_some_has_a_score_and_no_reward():
    outcome, _ = play(*TO_THE_MUG, "click[blue]", "click[buy now]", reward=10.0)
    assert (outcome.success, outcome.score, outcome.reward, outcome.terminated) == (False, 0.75, 0.0, True)
    outcome, _ = play(*TO_THE_MUG, "click[blue]", "click[buy now]", reward=10.0, partial=True)
    assert (outcome.success, outcome.score, outcome.reward) == (False, 0.75, 7.5)


def test_nothing_bought_is_worth_nothing():
    outcome, env = play(*["search[mug]"] * 4, max_steps=4)
    assert outcome.truncated and not outcome.terminated and not outcome.success
    assert (outcome.score, outcome.reward, env.bought) == (0.0, 0.0, None)


def test_a_purchase_on_the_last_step_counts():
    outcome, _ = play(*TO_THE_MUG, "click[blue]", "click[small]", "click[buy now]", max_steps=5)
    assert outcome.success and outcome.terminated and not outcome.truncated


def test_the_state_anchor_tells_selections_apart_and_not_their_order():
    anchors = [
        play(*TO_THE_MUG, *clicks)[0].observation.anchor
        for clicks in (
            (),
            ("click[red]",),
            ("click[blue]",),
            ("click[red]", "click[small]"),
            ("click[small]", "click[red]"),
            ("click[blue]", "click[small]", "click[red]"),
        )
    ]
    assert len(set(anchors)) == 4
    assert anchors[3] == anchors[4] == anchors[5]


def test_the_text_anchor_is_the_published_one():
    texts = {play(*TO_THE_MUG, *c, anchor="text")[0].observation.anchor for c in ((), ("click[red]",))}
    assert texts == {
        "'Back to Search' [SEP] '< Prev' [SEP] 'color' [SEP] 'blue' [SEP] 'red' [SEP] 'size' [SEP] 'small' "
        "[SEP] 'x-large' [SEP] 'Blue Stone Mug' [SEP] 'Price: $12.5' [SEP] 'Rating: N.A.' [SEP] "
        "'Description' [SEP] 'Features' [SEP] 'Reviews' [SEP] 'Buy Now'"
    }
    rich, _ = play(*TO_THE_MUG, "click[red]", anchor="text", mode="text_rich")
    assert "[clicked button] red" in rich.observation.anchor
    assert "Find me" not in rich.observation.anchor


def test_equal_pages_of_two_products_are_two_places():
    twins = [p for p in PRODUCTS if p.asin in ("B000000100", "B000000101")]
    twins = [PRODUCTS[1], *(replace(p, title="Plain") for p in twins)]
    shop = open_shop(Catalogue.from_products(twins, noun_source="by hand"))
    env, anchors = WebshopEnv(shop), set()
    for asin in ("b000000100", "b000000101"):
        env.reset(shop.goals[0])
        env.step("search[plain]")
        anchors.add(env.step(f"click[{asin}]").observation.anchor)
    assert len(anchors) == 2


def test_the_instruction_can_be_left_to_the_prompt():
    env = WebshopEnv(SHOP, show_instruction=False)
    assert env.reset(MUG).text == "'Search'"
    assert env.instruction == MUG.instruction
    assert env.step("search[stone]").observation.text.startswith("'Back to Search' [SEP] 'Page 1 ")
    rich = WebshopEnv(SHOP, mode="text_rich", show_instruction=False)
    assert rich.reset(MUG).text == "[button] Search [button_]\n"


def test_refused_actions_leave_the_observation_and_cost_a_step():
    env = WebshopEnv(SHOP, max_steps=2)
    start = env.reset(MUG)
    first, second = env.step("buy it"), env.step("click[buy now]")
    assert first.observation == second.observation == start
    assert second.truncated


def test_snapshots_travel():
    _, env = play(*TO_THE_MUG, "click[red]")
    snapshot = pickle.loads(pickle.dumps(env.snapshot()))
    other = WebshopEnv(small_shop())
    assert other.restore(snapshot) == env.snapshot().observation
    assert other.step("click[buy now]") == env.step("click[buy now]")


def test_seed_of_reset_is_the_random_listing():
    env = WebshopEnv(SHOP)

    def listing(seed):
        env.reset(MUG, seed)
        return env.step("search[<r>]").observation.text

    assert listing(1) == listing(1) != listing(2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_steps": 0}, "max_steps must be at least 1, got 0"),
        ({"mode": "html"}, "mode must be one of text, text_rich, got 'html'"),
        ({"anchor": "url"}, "anchor must be one of state, text, got 'url'"),
    ],
)
def test_faulty_options_are_named(options, message):
    with pytest.raises(EnvError, match=message):
        WebshopEnv(SHOP, **options)


def test_other_faults_are_named():
    env = WebshopEnv(SHOP)
    with pytest.raises(EnvError, match="Goal tasks, got str"):
        env.reset("a mug")
    with pytest.raises(EnvError, match="snapshot before reset"):
        env.snapshot()
    env.reset(MUG)
    with pytest.raises(EnvError, match="an action is a string, got int"):
        env.step(3)
    without = open_shop(Catalogue.from_products(PRODUCTS, noun_source=""))
    with pytest.raises(EnvError, match="no nouns"):
        WebshopEnv(without)


WORDS = ["mug", "stone", "mugs", "garden", '"red"', "größe", "🙂", "Ǆ", "İ", "", "\n", "\x00", "[", "]", "[["]
WORDS += ["<r>", "<q>", "<c>", "<a>", "search_results", "item_page", "item_sub_page", "done"]


def strange(rng, observation):
    """An action of any sort: sensible, nearly so, or not at all."""
    draw = rng.random()
    if draw < 0.55 and observation.admissible:
        action = rng.choice(observation.admissible)
    elif draw < 0.75:
        action = f"search[{' '.join(rng.choices(WORDS, k=rng.randint(1, 4)))}]"
    elif draw < 0.76:
        action = f"search[{'mug stone ' * 1000}"[: rng.randint(1, 10_000)] + rng.choice(["", "]"])
    elif draw < 0.85:
        buttons = ("buy now", "< prev", "next >", "features", "attributes", "back to search", "red", "search")
        action = f"click[{rng.choice(buttons)}]"
    else:
        action = "".join(rng.choices("click[]search <>\n\té🙂\u202e{}%", k=rng.randint(0, 30)))
    if rng.random() < 0.1:
        place = rng.randint(0, len(action))
        action = action[:place] + rng.choice("[]\nÉ ") + action[place:]
    return action


@pytest.mark.parametrize("count", [5_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_no_action_crashes(count):
    rng = random.Random(count)
    envs = [
        WebshopEnv(SHOP, max_steps=40),
        WebshopEnv(SHOP, max_steps=40, mode="text_rich", anchor="text", show_attributes=True),
    ]
    observations = [env.reset(rng.choice(SHOP.goals), rng.randrange(9)) for env in envs]
    bought = 0
    for i in range(count):
        env = envs[i % 2]
        before = env.snapshot()
        outcome = env.step(strange(rng, observations[i % 2]))
        assert 0.0 <= outcome.score <= 1.0
        assert outcome.success == (outcome.score == 1.0)
        if i % 100 == 0:
            for action in outcome.observation.admissible if not outcome.done else ():
                at = env.snapshot()
                assert env.step(action).observation != at.observation or at.state.options, action
                env.restore(at)
        if outcome.done:
            bought += outcome.terminated
            observations[i % 2] = env.reset(rng.choice(SHOP.goals), rng.randrange(9))
        else:
            assert env.snapshot().steps == before.steps + 1
            observations[i % 2] = outcome.observation
    assert bought > count / 400


def twin(goal_id):
    """The same walk where results are called by id and by rank: the environments, and their first pages."""
    shops = [replace(SHOP, ids=ids, results_a_page=2) for ids in ("asin", "rank")]
    envs = [WebshopEnv(shop, mode="text_rich", show_instruction=False) for shop in shops]
    for env in envs:
        env.reset(goal_id)
    return shops, envs, [env.step("search[mug]").observation for env in envs]


def test_products_called_by_rank_are_those_called_by_id():
    _, (by_id, by_rank), (ids, ranks) = twin(MUG)
    called = [action for action in ids.admissible if action.startswith("click[b0")]
    assert len(called) == 2
    as_ranks = {name: f"click[{n}]" for n, name in enumerate(called, start=1)}
    assert ranks.admissible == tuple(as_ranks.get(action, action) for action in ids.admissible)
    for name, rank in as_ranks.items():
        pages = by_id.step(name).observation, by_rank.step(rank).observation
        assert pages[0] == pages[1]
        lists = [env.step("click[< prev]").observation.text for env in (by_id, by_rank)]
        assert all(text.count("[clicked button]") >= 1 for text in lists)
    assert by_rank.step("click[3]").observation.text == lists[1], "a rank that is not there is refused"


def test_ranks_begin_anew_on_every_page():
    _, (by_id, by_rank), _ = twin(MUG)
    second = [env.step("click[next >]").observation for env in (by_id, by_rank)]
    assert "click[1]" in second[1].admissible
    first_there = next(action for action in second[0].admissible if action.startswith("click[b0"))
    assert by_id.step(first_there).observation == by_rank.step("click[1]").observation
