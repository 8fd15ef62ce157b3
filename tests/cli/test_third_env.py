"""An environment from a file that the project does not know: the example and the page."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from commands.build.pools import description, open_pool
from commands.check_env import command
from configs.load import load
from configs.schema import EnvConfig
from envs.checks import check_env
from envs.own_world import find_class
from envs.pools.remote import RemotePool
from envs.wire.task_book import task_digest
from envs.worlds import open_world
from tests.cli.test_runs import SMALL, call, toy_policy  # noqa: F401  (fixtures)

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = str(ROOT / "docs" / "examples" / "storeroom.yaml")
CONFIG = EnvConfig(name="docs/examples/storeroom.py:StoreroomWorld", max_steps=20)
STOREROOM = sys.modules[find_class(CONFIG.name).__module__]

# --- the example: by hand, by a solver, by the kit ----------------------------------------------------------

ERRAND = STOREROOM.Errand(
    id="by hand",
    family="lock_away",
    split="train",
    places=("shelf 1", "drawer 1", "safe 1"),
    things=(("mug 1", "shelf 1"), ("pen 1", "shelf 1"), ("keychain 1", "drawer 1")),
    wanted="mug",
    target="safe",
    count=1,
)
BY_HAND = [
    ("go to safe 1", "You arrive at safe 1. The safe 1 is closed."),
    ("open safe 1", "Nothing happens."),
    ("go to shelf 1", "You arrive at shelf 1. On the shelf 1, you see a mug 1, and a pen 1."),
    ("take mug 1 from shelf 1", "You pick up the mug 1 from the shelf 1."),
    ("go to drawer 1", "You arrive at drawer 1. The drawer 1 is closed."),
    ("take keychain 1 from drawer 1", "Nothing happens."),
    ("open drawer 1", "You open the drawer 1. In the drawer 1, you see a keychain 1."),
    ("take keychain 1 from drawer 1", "You pick up the keychain 1 from the drawer 1."),
    ("go to safe 1", "You arrive at safe 1. The safe 1 is closed."),
    ("move mug 1 to safe 1", "Nothing happens."),
    ("open safe 1", "You open the safe 1. In the safe 1, you see nothing."),
    ("move mug 1 to safe 1", "You move the mug 1 to the safe 1."),
]


def test_an_errand_worked_out_by_hand():
    env = open_world(CONFIG).make_env()
    start = env.reset(ERRAND)
    assert start.text.endswith(
        "you see a shelf 1, a drawer 1, and a safe 1.\n\nYour task is to: put some mug in safe."
    )
    assert start.admissible == ("go to shelf 1", "go to drawer 1", "go to safe 1")
    outcomes = [env.step(action) for action, _ in BY_HAND]
    assert [outcome.observation.text for outcome in outcomes] == [text for _, text in BY_HAND]
    assert [outcome.success for outcome in outcomes] == [False] * 11 + [True]
    assert [outcome.reward for outcome in outcomes] == [0.0] * 11 + [1.0]
    # A refused command leaves one where one was; the place with another thing in hand is another situation.
    anchors = [outcome.observation.anchor for outcome in outcomes]
    assert anchors[0] == anchors[1]
    assert anchors[0] != anchors[8]


def solve(env, errand):
    """Gathers everything from everywhere, then delivers; True if that succeeds."""
    observation = env.reset(errand)

    def do(action):
        nonlocal observation
        outcome = env.step(action)
        observation = outcome.observation
        return outcome.success

    targets = [place for place in errand.places if place.split()[0] == errand.target]
    for place in [p for p in errand.places if p not in targets]:
        do(f"go to {place}")
        for verb in ("open", "take"):
            for action in [a for a in observation.admissible if a.startswith(verb)]:
                do(action)
    do(f"go to {targets[0]}")
    for verb in ("open", f"move {errand.wanted}"):
        for action in [a for a in observation.admissible if a.startswith(verb)]:
            if do(action):
                return True
    return False


@pytest.mark.parametrize("places", [3, 6, 20])
def test_every_errand_can_be_done_and_none_is_done_already(places):
    world = open_world(CONFIG.model_copy(update={"max_steps": 200, "options": {"places": places}}))
    env = world.make_env()
    for split in world.splits:
        for errand in world.tasks(split, 60):
            assert all(
                place.split()[0] != errand.target for thing, place in errand.things if errand.wanted in thing
            )
            assert solve(env, errand), errand


def test_splits_share_no_errand_and_have_all_families():
    world = open_world(CONFIG)
    content = {}
    for split in world.splits:
        tasks = world.tasks(split)
        assert {task.family for task in tasks} == {"bring_one", "bring_two", "lock_away"}
        content[split] = {(task.places, task.things, task.wanted, task.target) for task in tasks}
    assert not content["train"] & (content["valid"] | content["test"])
    other = open_world(CONFIG.model_copy(update={"data_seed": 1}))
    assert world.tasks("train", 5) != other.tasks("train", 5)


@pytest.mark.parametrize("anchor", ["state", "text"])
def test_the_example_keeps_the_contract(anchor):
    world = open_world(CONFIG.model_copy(update={"anchor": anchor}))
    check_env(
        world.make_env,
        world.tasks("train", 6),
        limit=20,
        refused=lambda outcome: outcome.observation.text == "Nothing happens.",
    )


# --- the commands -------------------------------------------------------------------------------------------


def test_it_is_checked_trained_evaluated_and_resumed_as_any_other(call, toy_policy, tmp_path):  # noqa: F811
    code, lines, error = call("check-env", EXAMPLE, "-n", "1")
    assert (code, lines) == (0, ["StoreroomWorld keeps the contract on 2 tasks of train, test"]), error
    code, lines, error = call("train", EXAMPLE, "credit=gigpo", toy_policy, *SMALL)
    assert code in (0, None), error
    match = re.fullmatch(r"held-out success .* on 3 tasks · GIGPO · 2 updates · report (\S+)", lines[-1])
    assert match, lines[-1]
    run = (tmp_path / match[1]).parent
    assert json.loads((run / "config.json").read_text())["env"]["options"] == {"places": 6}
    families = json.loads((run / "eval" / "0002.json").read_text())["tasks"]
    assert {task["family"] for task in families} == {"bring_one", "bring_two", "lock_away"}
    code, lines, error = call("train", "--resume", str(run), "train.updates=3")
    assert code in (0, None), error
    assert "3 updates" in lines[-1]


def test_worker_processes_play_the_same():
    def play(env):
        world, seen = open_world(env), []
        tasks = world.tasks("train", 2)
        with open_pool(env, world) as pool:
            for key, task in enumerate(tasks):
                pool.open(key, task, 0)
            rngs = [random.Random(key) for key in range(len(tasks))]
            for _ in range(10):
                for reply in sorted(pool.ready(), key=lambda reply: reply.key):
                    assert reply.failure is None, reply.failure
                    seen.append((reply.key, reply.observation, reply.outcome))
                    pool.step(reply.key, rngs[reply.key].choice(reply.observation.admissible))
        return sorted(seen[:16], key=repr)

    assert play(CONFIG) == play(CONFIG.model_copy(update={"workers": 1}))


def test_a_server_knows_its_tasks_and_tells_another_world_apart(tmp_path):
    world = open_world(CONFIG)
    task = world.tasks("test", 3)[2]
    assert world.task_book().find(task.id, task_digest(task)) == task
    here = description(CONFIG)
    assert here.name == "StoreroomWorld"
    other = description(CONFIG.model_copy(update={"options": {"places": 7}}))
    assert any("option options" in text for text in here.differences(other))
    source = (ROOT / "docs" / "examples" / "storeroom.py").read_text(encoding="utf-8")
    changed = tmp_path / "storeroom.py"
    changed.write_text(source.replace("Nothing happens.", "No."), encoding="utf-8")
    edited = description(CONFIG.model_copy(update={"name": f"{changed}:StoreroomWorld"}))
    assert [text.split()[0] for text in here.differences(edited)] == ["code"]


@pytest.mark.slow
def test_a_real_server_plays_the_same():
    process = subprocess.Popen(
        [sys.executable, "run.py", "serve", "docs/examples/storeroom.yaml", "--port", "0", "--workers", "0"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        url = re.search(r"http://\S+", process.stdout.readline())[0]
        env = load(EXAMPLE).config.env
        world = open_world(env)
        ours = world.make_env()
        with RemotePool([url], description(env)) as pool:
            for key, task in enumerate(world.tasks("test", 5)):
                pool.open(key, task, 0)
                (reply,) = pool.ready()
                assert reply.observation == ours.reset(task)
                rng = random.Random(key)
                while reply.outcome is None or not reply.outcome.done:
                    action = rng.choice(reply.observation.admissible)
                    pool.step(key, action)
                    (reply,) = pool.ready()
                    assert reply.outcome == ours.step(action)
    finally:
        process.terminate()
        process.wait(60)
        process.stdout.close()


# --- the documents ------------------------------------------------------------------------------------------


def blocks(language):
    text = (ROOT / "docs" / "environments.md").read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def test_what_the_page_says_works(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    number, lake, theirs = blocks("python")
    (tmp_path / "number.py").write_text(number, encoding="utf-8")
    (tmp_path / "number.yaml").write_text(blocks("yaml")[0], encoding="utf-8")
    (tmp_path / "lake.py").write_text(lake, encoding="utf-8")
    command.run("number.yaml", [], 30, [])
    assert capsys.readouterr().out == "Numbers keeps the contract on 30 tasks of train, test\n"
    (tmp_path / "lake.yaml").write_text("env: {name: 'lake.py:Lake', max_steps: 15}\n", encoding="utf-8")
    command.run("lake.yaml", [], 1, ["test"])
    assert capsys.readouterr().out == "Lake keeps the contract on 1 task of test\n"
    names = {}
    exec(theirs, names)  # noqa: S102  (the page's own lines)
    assert names["info"]["task"] in {task.id for task in names["generate_games"]("train", 100, seed=0)}
