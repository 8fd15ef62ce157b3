"""Which tasks runs and evaluations play, wherever they are stored and played, and the manifests left."""

from __future__ import annotations

import json
import os
from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from envs.alfworld import FAMILIES, load_jsonl, write_jsonl
from envs.alfworld.game import packaged_text
from envs.alfworld.generate import generate_games
from envs.base import task_digest
from envs.subset import subset
from eval.manifest import Manifest
from eval.result import EvalResult
from tests.cli.test_runs import SMALL, call, toy_policy  # noqa: F401  (fixtures)
from tests.envs.server.started import STEPS, started

STOREROOM = str(Path(__file__).resolve().parents[2] / "docs" / "examples" / "storeroom.yaml")
EVAL = (*SMALL, f"env.max_steps={STEPS}", "eval.split=valid_seen")


def write_folder(root, games):
    """Writes games as `alfworld-download` leaves them, each with the texts that the package has."""
    domain, grammar = packaged_text("alfred.pddl"), packaged_text("alfred.twl2")
    for game in games:
        folder = root / game.id
        folder.mkdir(parents=True)
        body = {
            "pddl_domain": domain,
            "grammar": grammar.replace("UNKNOWN GOAL", game.goal),
            "pddl_problem": game.pddl_problem,
            "solvable": True,
        }
        (folder / "game.tw-pddl").write_text(json.dumps(body))
        meta = {"task_type": game.family, "pddl_params": dict(game.pddl_params)}
        (folder / "traj_data.json").write_text(json.dumps(meta))


@pytest.fixture(scope="module")
def games():
    """60 games of a split, ordered as a folder is: all of a family beside each other."""
    made = generate_games("valid_seen", 60, seed=3, difficulty=0.0)
    named = [replace(game, id=f"valid_seen/{game.id.rpartition('/')[2]}/trial_1") for game in made]
    return sorted(named, key=lambda game: game.id)


@pytest.fixture
def data(games, tmp_path):
    write_jsonl(tmp_path / "games.jsonl", games)
    return tmp_path / "games.jsonl"


def played(path):
    """What an evaluation wrote: its records by task, its provenance, its manifest."""
    document = json.loads(path.read_text(encoding="utf-8"))
    manifest = Manifest.read(path.with_name(f"{path.stem}.manifest.json"))
    return EvalResult.from_json(json.dumps(document)).tasks, document["provenance"], manifest


def evaluated_everywhere(call, tmp_path, games, data, workers, *arguments):  # noqa: F811
    """Evaluates on games as stored in `data`, and otherwise, and played elsewhere: what each wrote."""
    write_jsonl(tmp_path / "reversed.jsonl.xz", reversed(games))
    write_folder(tmp_path / "folder", reversed(games))
    found = {}
    with started() as server:
        variants = {
            "jsonl": [f"env.data={data}"],
            "reversed": [f"env.data={tmp_path / 'reversed.jsonl.xz'}"],
            "folder": [f"env.data={tmp_path / 'folder'}"],
            "workers": [f"env.data={data}", f"env.workers={workers}"],
            "server": [f"env.data={data}", f"env.urls={server.url}", "env.timeout_s=60"],
        }
        for name, overrides in variants.items():
            unofficial = pytest.warns(UserWarning, match="official valid_seen")
            with unofficial if name == "folder" else nullcontext():
                code, lines, error = call(
                    "eval", "alfworld_cpu", *arguments, *overrides, "--out", f"{name}.json"
                )
            assert code in (0, None), error
            found[name] = played(tmp_path / f"{name}.json")
            assert f"manifest {name}.manifest.json, hash {found[name][2].hash}" in lines
            assert f" of valid_seen: {found[name][2].counts}" in lines[0]
    return found


def assert_alike(found, games, n):
    """Checks that all played the `n` games that the rule chooses, in proportion, with the same results."""
    tasks, _, manifest = found["jsonl"]
    games = sorted(games, key=lambda game: game.id)
    ids, families = [game.id for game in games], [game.family for game in games]
    expected = [games[place] for place in subset(ids, families, n, 0)]
    assert [entry.id for entry in manifest.tasks] == [game.id for game in expected]
    assert [entry.digest for entry in manifest.tasks] == [task_digest(game) for game in expected]
    assert {task.task_id for task in tasks} == {game.id for game in expected} != set(ids[:n])
    shares = {family: n * count / len(games) for family, count in Counter(families).items()}
    assert all(abs(manifest.families[family] - share) < 1 for family, share in shares.items())
    for name, (records, _, other) in found.items():
        assert other.hash == manifest.hash and other.tasks == manifest.tasks, name
        assert records == tasks, name


def test_the_same_tasks_and_results_wherever_they_are_stored_and_played(
    call,  # noqa: F811
    toy_policy,  # noqa: F811
    games,
    data,
    tmp_path,
):
    found = evaluated_everywhere(call, tmp_path, games, data, 2, toy_policy, *EVAL, "eval.tasks=12")
    assert_alike(found, games, 12)


@pytest.mark.slow
def test_the_same_of_forty_real_games(call, shared, tmp_path):  # noqa: F811
    data = shared / "data" / "alfworld" / "games.jsonl.xz"
    games = load_jsonl(data, "valid_seen")
    options = (f"env.max_steps={STEPS}", "eval.split=valid_seen", "eval.tasks=40")
    found = evaluated_everywhere(call, tmp_path, games, data, 4, *options)
    assert_alike(found, games, 40)
    assert all(found["jsonl"][2].families[family] for family in FAMILIES)
    assert any(task.success for task in found["jsonl"][0])


def test_what_an_evaluation_says_of_itself(call, toy_policy, games, data, tmp_path):  # noqa: F811
    write_jsonl(data, [game for game in games if game.family != FAMILIES[0]])
    arguments = ("eval", "alfworld_cpu", toy_policy, *EVAL, f"env.data={data}", "eval.tasks=25")
    code, lines, error = call(*arguments, "--out", "result.json")
    assert code in (0, None), error
    assert f"absent families: {FAMILIES[0]}" in lines
    assert sum(f"absent families: {FAMILIES[0]}" in line for line in lines) == 2, "also below the table"
    _, told, manifest = played(tmp_path / "result.json")
    assert (told["experiment"], told["run"], told["credit"], told["checkpoint"]) == (
        "alfworld_cpu",
        *[None] * 3,
    )
    assert (told["update"], told["split"]) == (0, "valid_seen")
    assert told["manifest"]["hash"] == manifest.hash and told["manifest"]["absent"] == [FAMILIES[0]]
    assert (told["manifest"]["n"], told["manifest"]["families"]) == (25, manifest.families)
    assert told["sampling"] == {"temperature": 1.0, "seed": 0, "max_response_tokens": 8, "max_steps": STEPS}
    assert told["prompt"]["template"] == "alfworld_bare"
    assert set(told["environment"]) >= {"commit", "torch", "python"}
    code, lines, _ = call(*arguments)
    where = next(line for line in lines if line.startswith("manifest ")).split()[1].rstrip(",")
    assert where == f"runs/manifests/alfworld_cpu-valid_seen-25-{manifest.hash[:8]}.json"
    assert Manifest.read(tmp_path / where) == manifest


def test_a_manifest_is_accepted_back_and_what_differs_is_named(
    call,  # noqa: F811
    toy_policy,  # noqa: F811
    games,
    data,
    tmp_path,
):
    base = ("eval", "alfworld_cpu", toy_policy, *EVAL, f"env.data={data}")
    assert call(*base, "eval.tasks=10", "env.subset_seed=4", "--out", "first.json")[0] in (0, None)
    tasks, _, manifest = played(tmp_path / "first.json")
    again = (*base, "eval.manifest=first.manifest.json", "--out", "again.json")
    code, _, error = call(*again)
    assert code in (0, None), error
    assert played(tmp_path / "again.json")[::2] == (tasks, manifest)

    wanted = [entry.id for entry in manifest.tasks]
    gone, changed = set(wanted[:4]), wanted[5]
    write_jsonl(data, [
        replace(game, goal=f"{game.goal} again") if game.id == changed else game
        for game in games if game.id not in gone
    ])  # fmt: skip
    code, _, error = call(*again)
    assert code == 2
    assert "4 of its 10 tasks are missing here" in error and all(name in error for name in gone)
    other = next(game for game in load_jsonl(data) if game.id == changed)
    old = next(entry.digest for entry in manifest.tasks if entry.id == changed)
    assert "1 of its 10 tasks are of another generation" in error
    assert f"{changed} ({old} there, {task_digest(other)} here)" in error
    assert not any(name in error for name in set(wanted) - gone - {changed})

    for overrides, message in (
        (["eval.split=train"], "tasks of eval.split=valid_seen, and eval.split is train"),
        (["env.name=webshop", "env.data=generated"], "tasks of env.name=alfworld, and env.name is webshop"),
        (["eval.manifest=nowhere.json"], "there is no manifest nowhere.json"),
    ):
        code, _, error = call(*again, *overrides)
        assert code == 2 and message in error, error


@pytest.mark.parametrize(
    ("experiment", "world"),
    [
        ("alfworld_cpu", ["eval.split=valid_unseen"]),
        ("webshop_cpu", ["env.options.products=120", "prompt.template=webshop_bare"]),
        (STOREROOM, []),
    ],
)
def test_manifests_of_every_world_are_accepted_back(call, toy_policy, tmp_path, experiment, world):  # noqa: F811
    base = ("eval", experiment, toy_policy, *SMALL, *world)
    code, _, error = call(*base, "eval.tasks=4", "--out", "first.json")
    assert code in (0, None), error
    code, _, error = call(*base, "eval.manifest=first.manifest.json", "eval.tasks=1", "--out", "again.json")
    assert code in (0, None), error
    first, again = played(tmp_path / "first.json"), played(tmp_path / "again.json")
    assert first[::2] == again[::2] and len(first[0]) == 4


def test_a_run_leaves_its_manifests_and_goes_on_with_the_same_tasks_only(
    call,  # noqa: F811
    toy_policy,  # noqa: F811
    games,
    data,
    tmp_path,
):
    both = [*games, *(replace(game, id=f"train/{game.id}", split="train") for game in games)]
    write_jsonl(data, both)
    arguments = (*EVAL, f"env.data={data}", "train.updates=1", "--out", "run")
    code, _, error = call("train", "alfworld_cpu", toy_policy, *arguments)
    assert code in (0, None), error
    trained = Manifest.read(tmp_path / "run" / "manifests" / "train.json")
    evaluated = Manifest.read(tmp_path / "run" / "manifests" / "eval.json")
    assert (trained.split, trained.n, trained.of) == ("train", 4, 60)
    assert (evaluated.split, evaluated.n, evaluated.of) == ("valid_seen", 3, 60)
    result = EvalResult.from_json((tmp_path / "run" / "eval" / "0000.json").read_text())
    assert {task.task_id for task in result.tasks} == {entry.id for entry in evaluated.tasks}

    write_jsonl(data, reversed(both))
    code, _, error = call("train", "--resume", "run", "train.updates=2")
    assert code in (0, None), error

    gone = trained.tasks[0].id
    write_jsonl(data, [game for game in both if game.id != gone])
    code, _, error = call("train", "--resume", "run", "train.updates=3")
    assert code == 2
    assert "not those that the run began with" in error and f"{gone}: gone" in error

    code, lines, error = call("eval", "--run", "run", "eval.manifest=run/manifests/eval.json")
    assert code in (0, None), error
    left = [name for name in os.listdir(tmp_path / "run" / "manifests") if name.startswith("eval-")]
    assert left == [f"eval-valid_seen-3-{evaluated.hash[:8]}.json"]
    code, lines, error = call("eval", "--run", "run", "--out", "result.json")
    _, told, _ = played(tmp_path / "result.json")
    assert (told["run"], told["credit"], told["update"]) == ("run", "scpo", 2)
    assert told["checkpoint"] == "run/checkpoints/0002"

    write_jsonl(data, both)
    for path in (tmp_path / "run" / "manifests").iterdir():
        path.unlink()
    code, _, error = call("train", "--resume", "run", "train.updates=3")
    assert code == 2
    assert "played the first 4 of the 60 tasks of split 'train'" in error
