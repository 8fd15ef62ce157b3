"""A world of one's own with a mistake in it: the message names the mistake and what to change."""

from __future__ import annotations

import re

import pytest

from commands.check_env import command
from configs.load import load
from configs.schema import EnvConfig
from configs.text import ConfigError
from envs.base import EnvError
from envs.checks import NonConforming
from envs.worlds import open_world

FAULTY = """
from dataclasses import dataclass
from envs.base import Env

@dataclass(frozen=True)
class Task:
    id: str
    family: str = "f"
    split: str = "train"

class OnlyAnEnv(Env):
    reset = step = snapshot = restore = None

class NoMakeEnv:
    def tasks(self, split, n=None): return []

class World:
    splits = ("train", "test")
    found = [Task("a"), Task("b")]
    def __init__(self, env, *, size=3): pass
    def tasks(self, split, n=None): return self.found[:n]
    def make_env(self): return "nonsense"

class OneSplit(World):
    splits = "train"

class Needy(World):
    def __init__(self, env, *, size): pass

class Empty(World):
    found = []

class Twice(World):
    found = [Task("a"), Task("a")]

class Words(World):
    found = ["a"]

class Moody(World):
    drawn = 0
    def __init__(self, env):
        Moody.drawn += 1
        self.found = [Task(f"a{Moody.drawn}")]

class Elsewhere(World):
    found = [Task("a", split="test")]
"""
CLASSES = {
    "Wrold": "has no class 'Wrold': did you mean `World`?",
    "OnlyAnEnv": "OnlyAnEnv is an environment. Name a world",
    "NoMakeEnv": "NoMakeEnv has no make_env. Name a world",
    "OneSplit": "`splits` must list the names of its splits, is 'train'",
    "Needy": "needs env.options.size",
}
TASKS = {
    "Empty": "'train' has no tasks",
    "Twice": "2 tasks with 1 different ids",
    "Words": "a task has an id, a family and a split; str has not",
    "Moody": "'train' has other tasks every time",
    "Elsewhere": "task 'a' whose own split is 'test'",
    "World": "make_env returns a str, which is no envs.base.Env",
}


@pytest.fixture
def faulty(tmp_path):
    (tmp_path / "faulty.py").write_text(FAULTY, encoding="utf-8")
    (tmp_path / "faulty.yaml").write_text(
        f"env: {{name: '{tmp_path / 'faulty.py'}:World'}}\n", encoding="utf-8"
    )
    return tmp_path / "faulty.py"


@pytest.mark.parametrize(("name", "message"), CLASSES.items())
def test_a_class_that_cannot_be_used_is_named(faulty, name, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        open_world(EnvConfig(name=f"{faulty}:{name}"))


@pytest.mark.parametrize(("name", "message"), TASKS.items())
def test_what_a_world_gives_is_checked(faulty, name, message):
    with pytest.raises((EnvError, NonConforming), match=message):
        command.run(str(faulty.with_suffix(".yaml")), [f"env.name={faulty}:{name}"], 3, ["train"])


def test_what_is_not_there_is_named_with_what_is(faulty, tmp_path):
    with pytest.raises(ConfigError, match="there is no file nowhere.py"):
        open_world(EnvConfig(name="nowhere.py:World"))
    with pytest.raises(ConfigError, match="there is no module 'nowhere.at_all'"):
        open_world(EnvConfig(name="nowhere.at_all:World"))
    with pytest.raises(
        ConfigError, match=r"no option `env.options.sizes`: did you mean `env.options.size`\?"
    ):
        open_world(EnvConfig(name=f"{faulty}:World", options={"sizes": 3}))
    with pytest.raises(ConfigError, match="no split 'tran': did you mean `train`"):
        open_world(EnvConfig(name=f"{faulty}:World")).tasks("tran")
    with pytest.raises(
        ConfigError, match=r"`env.name` must be alfworld, webshop, or FILE.py:Class.*'alfword'"
    ):
        load("alfworld_cpu", ["env.name=alfword"])
    with pytest.raises(
        ConfigError, match=r"env.options: no option 'size'; there are none; env.name is alfworld"
    ):
        open_world(load("alfworld_cpu", ["env.options.size=3"]).config.env)
    with pytest.raises(EnvError, match="between 3 and 20, got 2"):
        open_world(EnvConfig(name="docs/examples/storeroom.py:StoreroomWorld", options={"places": 2}))


def test_what_a_file_misses_itself_is_not_taken_for_the_file(tmp_path):
    broken = tmp_path / "broken.py"
    broken.write_text("import no_such_package_at_all\nclass World: pass\n", encoding="utf-8")
    for _ in range(2):
        with pytest.raises(ConfigError, match="broken.py, line 1: .*'no_such_package_at_all' here: install"):
            open_world(EnvConfig(name=f"{broken}:World"))
