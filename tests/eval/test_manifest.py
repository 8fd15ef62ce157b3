"""Manifests: what they say of tasks, and what they refuse."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from envs.subset import Roster
from eval import manifest as module
from eval.manifest import Manifest
from eval.result import EvalError
from tests.toy import toy_tasks


def described(tasks, n=None, seed=0, families=("far", "near")):
    chosen = Roster.of(tasks).choose(n, seed)
    source = {"data": "toys"}
    return Manifest.of_tasks(
        chosen, world="toy", split="train", source=source, subset_seed=seed, families=families
    )


def test_what_it_says(tmp_path):
    tasks = toy_tasks(30)
    chosen = Roster.of(tasks).choose(8, 3).tasks
    made = described(tasks, 8, seed=3, families=("far", "farther", "near"))
    near = sum(task.family == "near" for task in chosen)
    assert (made.n, made.of) == (8, 30)
    assert made.families == {"far": 8 - near, "farther": 0, "near": near}
    assert made.absent == ["farther"]
    assert made.counts == f"far {8 - near} · near {near}"
    assert [entry.id for entry in made.tasks] == [task.id for task in chosen]
    path = made.write(tmp_path / "deep" / "tasks.json")
    assert Manifest.read(path) == made
    document = json.loads(path.read_text())
    assert document["version"] == 1 and document["n"] == 8 and document["absent"] == ["farther"]
    assert not list(path.parent.glob(".*")), "nothing half written is left"


def test_its_hash_is_that_of_the_tasks_in_any_order():
    tasks = toy_tasks(10)
    made = described(tasks)
    assert described(tasks[::-1]).hash == made.hash
    assert described(tasks[1:]).hash != made.hash
    assert described([replace(tasks[0], key=99), *tasks[1:]]).hash != made.hash
    assert described([replace(tasks[0], family="odd"), *tasks[1:]]).hash != made.hash


def test_of_very_many_tasks_none_is_made(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MOST_LISTED", 9)
    tasks = toy_tasks(10)

    def never(which):
        raise AssertionError("a task was made")

    chosen = replace(Roster.of(tasks), take=never).choose(None, 0)
    asked = {"world": "toy", "split": "train", "source": {}, "subset_seed": 0, "families": ()}
    made = Manifest.of_tasks(chosen, **asked)
    assert made.tasks is None and made.n == 10
    assert Manifest.read(made.write(tmp_path / "tasks.json")) == made
    assert Manifest.of_tasks(Roster.of(tasks[::-1]).choose(None, 0), **asked).hash == made.hash
    assert Manifest.of_tasks(Roster.of(toy_tasks(11)).choose(None, 0), **asked).hash != made.hash


def test_every_missing_task_and_every_other_generation_is_named():
    tasks = toy_tasks(10)
    made = described(tasks)
    there = {task.id: task for task in tasks}
    made.check_played(there, Path("tasks.json"))
    gone = [there.pop(f"train-{i}").id for i in (0, 2, 4, 6, 8)]
    changed = there["train-3"] = replace(there["train-3"], key=77)
    with pytest.raises(EvalError, match="tasks.json: 5 of its 10 tasks are missing here") as caught:
        made.check_played(there, Path("tasks.json"))
    message = str(caught.value)
    assert all(f"\n  {name}\n" in message for name in gone)
    old = next(entry.digest for entry in made.tasks if entry.id == "train-3")
    new = next(entry.digest for entry in described([changed]).tasks)
    assert "1 of its 10 tasks are of another generation" in message
    assert f"train-3 ({old} there, {new} here)" in message
    assert not any(f"  {name}" in message for name in ("train-1", "train-5"))


def test_a_run_that_goes_on_with_other_tasks_has_three_of_them_named():
    tasks = toy_tasks(10)
    began = described(tasks)
    described(tasks[::-1]).check_same(began, Path("train.json"))
    now = described([*tasks[2:9], replace(tasks[9], key=77), *toy_tasks(1, split="new")])
    with pytest.raises(EvalError, match="not those that the run began with.*train.json: 10 tasks") as caught:
        now.check_same(began, Path("train.json"))
    lines = str(caught.value).splitlines()[1:-1]
    assert lines == ["  train-0: gone", "  train-1: gone", "  new-0: new", "  and 1 more"]
    with pytest.raises(EvalError, match="train-9: [0-9a-f]{24} then, [0-9a-f]{24} now"):
        described([*tasks[:9], replace(tasks[9], key=77)]).check_same(began, Path("train.json"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda document: document.pop("tasks"), "no manifest of tasks"),
        (lambda document: document["tasks"][0].pop("digest"), "no manifest of tasks"),
        (lambda document: document.update(version=2), "version 2, expected a 'sibling-tasks' of version 1"),
        (lambda document: document["tasks"].pop(), "was changed after it was written"),
        (lambda document: document["tasks"][0].update(digest="0"), "was changed after it was written"),
    ],
)
def test_what_is_no_manifest_or_was_changed_is_refused(tmp_path, change, message):
    path = described(toy_tasks(3)).write(tmp_path / "tasks.json")
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))
    with pytest.raises(EvalError, match=message):
        Manifest.read(path)


def test_what_is_not_there_or_not_json_is_named(tmp_path):
    with pytest.raises(EvalError, match="there is no manifest .*nowhere.json"):
        Manifest.read(tmp_path / "nowhere.json")
    (tmp_path / "text.json").write_text("tasks")
    with pytest.raises(EvalError, match="text.json is no manifest"):
        Manifest.read(tmp_path / "text.json")
