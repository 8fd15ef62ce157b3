"""Worlds describe themselves, and subsets of all of them are taken in one way."""

from __future__ import annotations

import sys
from collections import Counter

import pytest

from commands.build import pools
from commands.serve_environments import environment
from configs.load import load
from configs.schema import EnvConfig
from configs.text import ConfigError
from configs.worlds import WORLDS
from envs.alfworld import FAMILIES, load_games, write_jsonl
from envs.alfworld.generate import generate_games
from envs.alfworld.uploads import UploadedGames
from envs.base import task_digest
from envs.pools.remote import RemotePool
from envs.subset import Roster, subset
from envs.wire.description import describe
from envs.world import World
from envs.worlds import open_world
from tests.toy import ToyEnv, toy_tasks

STOREROOM = "docs/examples/storeroom.py:StoreroomWorld"


class Toys(World):
    """A built-in world that no other file knows."""

    splits = ("train",)

    def roster(self, split, n=None):
        return Roster.of(toy_tasks(30, split=split))

    def source(self):
        return {"data": "toys"}

    def make_env(self):
        return ToyEnv(self.env.max_steps)

    @classmethod
    def description(cls, env):
        return describe("toys", {"max_steps": env.max_steps}, code="of the toys")


@pytest.fixture
def toys(monkeypatch):
    monkeypatch.setitem(WORLDS, "toys", f"{__name__}:Toys")
    return EnvConfig(name="toys", max_steps=8)


def test_a_new_built_in_world_describes_itself(toys, monkeypatch):
    here = pools.description(toys)
    assert (here.name, here.options, here.code) == ("toys", {"max_steps": 8}, "of the toys")
    world = open_world(toys)
    assert isinstance(world, Toys)
    task = world.tasks("train", 3)[2]
    assert world.task_book().find(task.id, task_digest(task)) == task
    asked = []
    monkeypatch.setattr(RemotePool, "__init__", lambda self, urls, what, **_: asked.append(what))
    pools.open_pool(toys.model_copy(update={"urls": ("http://127.0.0.1:1",)}), world)
    assert asked == [here]


def test_what_the_others_say_is_what_it_was():
    """The name, the options and their values that clients and servers of the published wire compare."""
    games = pools.description(environment("alfworld", []))
    assert (games.name, games.data) == ("alfworld", "")
    assert games.options == {"max_steps": 30, "anchor": "state"}
    shop = pools.description(EnvConfig(name="webshop", data_seed=3, difficulty=0.5))
    assert (shop.name, shop.data) == ("webshop", "")
    assert shop.options == {
        **{"max_steps": 50, "anchor": "state", "data_seed": 3, "difficulty": 0.5, "products": 1000},
        **{"goals": "synthetic", "rule": "by_product", "order": 233, "mode": "text", "results_a_page": 10},
        **{"ids": "asin", "show_instruction": True, "show_attributes": False, "partial_reward": False},
    }
    own = pools.description(EnvConfig(name=STOREROOM, options={"places": 4}))
    assert own.name == "StoreroomWorld" and own.options["options"] == '{"places": 4}'
    assert isinstance(open_world(EnvConfig()).task_book(), UploadedGames)


# --- one way to take a subset -------------------------------------------------------------------------------


def sections(folder):
    games = generate_games("valid_seen", 60, seed=5, difficulty=0.0)
    write_jsonl(folder / "games.jsonl", sorted(games, key=lambda game: game.family))
    shop = {"products": 120}
    return {
        "games": (EnvConfig(data=str(folder / "games.jsonl")), "valid_seen"),
        "shop": (EnvConfig(name="webshop", options=shop), "train"),
        "papers": (EnvConfig(name="webshop", options={**shop, "rule": "papers"}), "test"),
        "own": (EnvConfig(name=STOREROOM), "test"),
    }


@pytest.mark.parametrize("which", ["games", "shop", "papers", "own"])
def test_every_world_takes_its_subsets_by_the_one_rule(tmp_path, which):
    env, split = sections(tmp_path)[which]
    world = open_world(env)
    whole = world.tasks(split)
    ids, families = [task.id for task in whole], [task.family for task in whole]
    n = len(whole) // 3
    assert len(set(families)) > 2
    chosen = world.tasks(split, n)
    assert [task.id for task in chosen] == [ids[place] for place in subset(ids, families, n, 0)]
    assert [task.id for task in chosen] != ids[:n]
    shares = {family: n * count / len(ids) for family, count in Counter(families).items()}
    counts = Counter(task.family for task in chosen)
    assert all(abs(counts[family] - share) < 1 for family, share in shares.items())
    other = open_world(env.model_copy(update={"subset_seed": 1})).tasks(split, n)
    assert {task.id for task in other} != {task.id for task in chosen}
    assert [task.id for task in world.tasks(split, len(ids))] == ids
    known = world.families(world.roster(split))
    assert set(families) <= set(known)


def test_of_generated_games_the_first_are_played_as_ever():
    env = EnvConfig(difficulty=0.0, data_seed=7)
    world = open_world(env)
    expected = [game.id for game in generate_games("train", 20, seed=7, difficulty=0.0)]
    assert [game.id for game in world.tasks("train", 20)] == expected
    assert [game.id for game in world.tasks("train", 5)] == expected[:5]
    seeded = open_world(env.model_copy(update={"subset_seed": 9}))
    assert [game.id for game in seeded.tasks("train", 5)] == expected[:5]
    assert tuple(world.families(world.roster("train", 1))) == FAMILIES


def test_a_world_of_ones_own_may_be_written_with_and_without_a_number(tmp_path):
    source = """
from dataclasses import dataclass
@dataclass(frozen=True)
class Task:
    id: str
    family: str
    split: str = "train"
class World:
    splits = ("train",)
    def __init__(self, env): pass
    def make_env(self): ...
    def tasks(self, split): return [Task(f"t{i}", f"f{i % 3}") for i in range(30)]
class WithNumber(World):
    def tasks(self, split, n=None): return super().tasks(split)[:n]
class NeedsNumber(World):
    def tasks(self, split, n): return super().tasks(split)[::-1][:n][::-1]
"""
    (tmp_path / "own.py").write_text(source)
    worlds = [
        open_world(EnvConfig(name=f"{tmp_path / 'own.py'}:{name}"))
        for name in ("World", "WithNumber", "NeedsNumber")
    ]
    taken = [[task.id for task in world.tasks("train", 9)] for world in worlds]
    assert taken[0] == taken[1] == taken[2]
    assert len(taken[0]) == 9


OWN = """
from dataclasses import dataclass
from configs.params import param
from envs.subset import Roster
from envs.world import Options, World
from tests.toy import ToyEnv, toy_tasks
@dataclass(frozen=True)
class ToyOptions(Options):
    toys: int = param(30, "How many.", low=1)
class OwnToys(World):
    Options = ToyOptions
    splits = ("train",)
    def roster(self, split, n=None): return Roster.of(toy_tasks(self.options.toys, split=split))
    def make_env(self): return ToyEnv(self.env.max_steps)
"""


def test_a_class_of_ones_own_may_derive_from_the_contract(tmp_path):
    here, there = tmp_path / "own.py", tmp_path / "elsewhere" / "own.py"
    there.parent.mkdir()
    for file in (here, there):
        file.write_text(OWN)
    env = EnvConfig(name=f"{here}:OwnToys", options={"toys": 12})
    assert len(open_world(env).tasks("train")) == 12
    with pytest.raises(ConfigError, match="env.options: no option 'toy'; did you mean 'toys'"):
        open_world(env.model_copy(update={"options": {"toy": 3}}))
    told = pools.description(env)
    assert (told.name, told.options["toys"]) == ("OwnToys", 12)
    moved = env.model_copy(update={"name": f"{there}:OwnToys"})
    assert told.differences(pools.description(moved)) == []
    there.write_text(OWN.replace("How many.", "Their number."))
    sys.modules.pop(type(open_world(moved)).__module__)
    assert [text.split()[0] for text in told.differences(pools.description(moved))] == ["code"]


# --- the shipped experiments --------------------------------------------------------------------------------


def test_small_official_splits_are_evaluated_whole():
    for name in ("alfworld_1.5b", "alfworld_1.5b_lora", "alfworld_7b", "alfworld_7b_lora"):
        assert load(name).config.eval.tasks is None


REAL = {
    "look_at_obj_in_light": 4,
    "pick_and_place_simple": 10,
    "pick_clean_then_place_in_recep": 9,
    "pick_cool_then_place_in_recep": 6,
    "pick_heat_then_place_in_recep": 4,
    "pick_two_obj_and_place": 7,
}
"""Shares of 40 in 114 reference games of valid_seen, of which 11, 29, 24, 18, 12 and 20 are of these:
3.9, 10.2, 8.4, 6.3, 4.2, 7.0."""


def test_forty_real_games_are_of_all_families_in_proportion(shared, tmp_path):
    data = shared / "data" / "alfworld" / "games.jsonl.xz"
    games = load_games(data, "valid_seen")
    write_jsonl(tmp_path / "reversed.jsonl", reversed(games))
    found = []
    for place in (data, tmp_path / "reversed.jsonl"):
        chosen = open_world(EnvConfig(data=str(place))).tasks("valid_seen", 40)
        assert Counter(game.family for game in chosen) == REAL
        found.append([game.id for game in chosen])
    assert found[0] == found[1]
