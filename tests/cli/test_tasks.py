"""Worlds: tasks and environments as a configuration spells them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from configs.load import load
from configs.schema import EnvConfig
from configs.text import ConfigError
from envs.webshop import ShopError
from envs.webshop.generate import NOUN_SOURCE, generate_products
from envs.webshop.store import write_store
from envs.worlds import open_world

ROOT = Path(__file__).resolve().parents[2]


def shop(**options):
    return EnvConfig(name="webshop", options={"products": 60, **options})


def test_a_shop_from_the_configuration_is_the_one_its_options_say():
    world = open_world(shop(results_a_page=3, show_instruction=False, mode="text"))
    goal = world.tasks("train", 1)[0]
    env = world.make_env()
    env.reset(goal)
    observation = env.step("search[shop]").observation
    assert goal.instruction not in observation.text
    assert sum(action.startswith("click[gn") for action in observation.admissible) <= 3


@pytest.mark.parametrize(
    ("options", "split", "counts"),
    [({"rule": "papers"}, "test", 500), ({"rule": "upstream"}, "eval", 1000)],
)
def test_split_rules_reach_the_shop(options, split, counts):
    env = EnvConfig(name="webshop", options={"products": 600, **options})
    assert len(open_world(env).tasks(split)) == counts


def test_partial_reward_pays_any_purchase_its_score():
    paid = []
    for partial in (False, True):
        world = open_world(shop(partial_reward=partial))
        goal = world.tasks("train", 1)[0]
        env = world.make_env()
        env.reset(goal)
        outcome = env.step(f"search[{goal.instruction}]")
        wrong = next(
            a
            for a in outcome.observation.admissible
            if a.startswith("click[gn") and goal.asin.lower() not in a
        )
        env.step(wrong)
        outcome = env.step("click[buy now]")
        assert outcome.terminated and 0 < outcome.score < 1
        paid.append(outcome.reward / outcome.score)
    assert paid == [0.0, 1.0]


def test_a_store_is_played_like_the_products_it_was_written_from(tmp_path):
    write_store(tmp_path / "store", generate_products(60, seed=0), noun_source=NOUN_SOURCE)
    stored = open_world(shop().model_copy(update={"data": str(tmp_path / "store")}))
    made = open_world(shop())
    assert stored.tasks("train") == made.tasks("train")
    with pytest.raises(ShopError):
        open_world(shop().model_copy(update={"data": str(tmp_path)}))


def test_an_unknown_split_is_named_with_those_there_are():
    with pytest.raises(ConfigError, match=r"'tst'.*did you mean `test`.*train, eval, test"):
        open_world(shop()).tasks("tst")


TWICE = """
from envs.worlds import open_world
from configs.load import load
import random
world = open_world(load("webshop_cpu", ["env.options.products=80"]).config.env)
print([(g.id, g.instruction, g.price_limit) for g in world.tasks("train")], sorted(world.shop.drawn.items()))
env, rng = world.make_env(), random.Random(3)
for goal in world.tasks("test", 5):
    observation = env.reset(goal, 7)
    for _ in range(15):
        actions = [*observation.admissible, "search[<r>]", f"search[{goal.instruction}]"]
        outcome = env.step(rng.choice(actions))
        observation = outcome.observation
        print(observation, outcome.reward, outcome.score)
        if outcome.done:
            break
"""


def test_two_processes_have_the_same_goals_prices_and_transcripts():
    runs = [
        subprocess.run(
            [sys.executable, "-c", TWICE], cwd=ROOT, capture_output=True, text=True, env={"PYTHONHASHSEED": s}
        )
        for s in ("1", "2")
    ]
    assert runs[0].returncode == 0, runs[0].stderr
    assert len(runs[0].stdout) > 10_000
    assert runs[0].stdout == runs[1].stdout


def test_every_shipped_experiment_opens_a_world():
    for path in sorted((ROOT / "configs").glob("*.yaml")):
        config = load(path.stem).config
        assert open_world(config.env).tasks(config.eval.split, 2)
