"""A shop on a server: goals by id over the server's own catalogue."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from commands.build.pools import EnvMaker, description, open_pool
from commands.serve_environments import environment
from envs.base import EnvError
from envs.pools.pool import LocalPool
from envs.pools.processes import ProcessPool
from envs.worlds import open_world
from tests.envs.pools.walks import play
from tests.serving import ROOT

SHOP = ("env.options.products=60", "env.max_steps=8")


@pytest.fixture(scope="module")
def url():
    command = [sys.executable, "run.py", "serve", "webshop", "--port", "0", "--workers", "0", *SHOP]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        yield re.search(r"http://\S+", process.stdout.readline())[0]
        process.terminate()


def test_a_shop_is_the_same_in_process_in_workers_and_on_a_server(url):
    env = environment("webshop", SHOP)
    world = open_world(env)
    goals = world.tasks("train", 3)
    expected = play(LocalPool(world.make_env), goals)
    assert any("Buy Now" in reply.observation.text for walk in expected for reply in walk)
    with ProcessPool(EnvMaker(env), 1) as pool:
        assert play(pool, goals) == expected
    there = environment("webshop", [*SHOP, f"env.urls={url}", "env.timeout_s=60"])
    with open_pool(there, world) as pool:
        assert play(pool, goals) == expected


def test_another_shop_is_refused(url):
    other = environment("webshop", [*SHOP, "env.options.products=61", f"env.urls={url}"])
    with pytest.raises(EnvError, match="option products is 60 there, 61 here"):
        open_pool(other, None)


def test_a_folder_is_described_by_its_contents(tmp_path):
    (tmp_path / "manifest.json").write_text("{}")
    env = environment("webshop", [f"env.data={tmp_path}"])
    before = description(env)
    (tmp_path / "manifest.json").write_text('{"products": 2}')
    assert [part.split()[0] for part in before.differences(description(env))] == ["data"]
