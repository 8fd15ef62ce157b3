"""`run.py check-env` on worlds with one fault each: one line that says what to change, and exit code 2."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from commands.check_env.splits import check_disjoint, content
from envs.checks import NonConforming
from tests.cli.test_runs import call  # noqa: F401  (fixture)
from tests.toy import ToyEnv, ToyTask

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "environments.md").read_text(encoding="utf-8")
NUMBERS = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)[1]
"""The page's world, which is sound; each fault below changes one place of it."""

IMPORTS, CLASS = "from dataclasses import dataclass, replace\n", "class Numbers:"
SEE = 'commands = tuple(f"guess {number}" for number in range(1, self.highest + 1))'
STEP = "        task, said = self.now.task, action.strip()"
TASKS = '        chosen = range(1 if split == "train" else 2, self.highest + 1, 2)'
MADE = '[Task(f"number/{i}", "number", split, i) for i in chosen]'

OUTCOME = "return Outcome(self.now.observation, float(success), success, truncated, success, float(success))"
MAKE = "        return Guess(self.env.max_steps, self.highest)"

# What is replaced, by what, and key words of the line.
FAULTS = {
    "tasks ignore the split": (
        TASKS,
        "        chosen = range(1, self.highest + 1)",
        r"splits 'train' and 'test' share 30 of their tasks, such as 'number/\d+': what is held out must not",
    ),
    "… under other names": (
        f"{TASKS}\n        return {MADE}",
        "        return [Task(f'{split}/{i}', 'number', split, i) for i in range(1, self.highest + 1)]",
        r"share a task: 'train/1' and 'test/1' differ in nothing but their names and play alike",
    ),
    "one task of many": (
        MADE,
        '[Task(f"{split}/{i}", "number", split, 7 if i == 28 else i) for i in chosen]',
        r"share a task: 'train/7' and 'test/28' differ in nothing",
    ),
    "five things from step": (
        OUTCOME,
        "return self.now.observation, float(success), success, truncated, {}",
        r"step returns \(.*, terminated, truncated, info\), as Gymnasium does: wrap the environment",
    ),
    "two things from reset": (
        "        return self.now.observation\n\n    def step",
        "        return self.now.observation, {}\n\n    def step",
        r"reset returns \(observation, info\), as Gymnasium does: wrap the environment in envs\.from_gym",
    ),
    "an environment of Gymnasium": (
        MAKE,
        "        import gymnasium\n        return gymnasium.make('FrozenLake-v1')",
        r"make_env returns a \w+, which is no envs.base.Env. Wrap it in envs.from_gymnasium.FromGymnasium",
    ),
    "a package that is not there": (
        IMPORTS,
        "import no_such_thing.at_all\n" + IMPORTS,
        r"number.py, line 1: there is no module 'no_such_thing' here: install .*`pip install no_such_thing`",
    ),
    "a part that is not there": (
        IMPORTS,
        "import json.no_such_part\n" + IMPORTS,
        r"number.py, line 1: there is no module 'json.no_such_part' here: json is installed, but has no such",
    ),
    "a neighbour": (
        IMPORTS,
        IMPORTS + "import beside\n",
        r"number.py, line 2: there is no module 'beside' here: beside lies next to the .* make a package",
    ),
    "a package missed later": (
        "        self.env, self.highest = env, highest",
        "        self.env, self.highest = env, highest\n        import no_such_thing",
        r"number.py, line \d+: there is no module 'no_such_thing' here: install",
    ),
    "a slip of the pen": (CLASS, "clas Numbers:", r"number.py, line \d+: SyntaxError: invalid syntax"),
    "an error while it is loaded": (
        IMPORTS,
        IMPORTS + "1 / 0\n",
        r"number.py, line 2: ZeroDivisionError: division by zero",
    ),
    "a crash in step": (
        STEP,
        "        self.tally += 1\n" + STEP,
        r"Numbers, task 'number/\d+': .*number.py, line \d+: AttributeError: 'Guess' object",
    ),
    "a draw of python's": (
        STEP,
        "        import random; random.random()\n" + STEP,
        r"on task 'number/\d+': step draws from the global random state of `random`\. .*configs.seeds.derive",
    ),
    "a draw of numpy's": (
        SEE,
        "import numpy; numpy.random.rand(); " + SEE,
        r"reset draws from the global random state of `numpy.random`",
    ),
    "the order of a set": (
        SEE,
        'commands = tuple({f"guess {number}" for number in range(1, self.highest + 1)})',
        r"'number/\d+' plays otherwise in another process, from what is seen after reset on\. .*sort what",
    ),
    "the number of the process": (
        SEE,
        SEE + "; import os; text += str(os.getpid())",
        r"plays otherwise in another process, from what is seen after reset on\. .*process id",
    ),
    "the time": (
        SEE,
        SEE + "; import time; text += str(time.perf_counter_ns())",
        r"reset gives the same first observation; it was Observation\(text='Your task .*, then Obs.*derive",
    ),
    "an end by what was played before": (
        "truncated = steps >= self.max_steps and not success",
        "Guess.begun = getattr(Guess, 'begun', 0) + (steps == 1)\n"
        "        truncated = not success and steps >= self.max_steps - Guess.begun % 3",
        r"the same outcomes; at step \d truncated was \w+, then \w+\. .*derive",
    ),
    "tasks by hash": (
        MADE,
        "[Task(f'number/{i}', 'number', split, hash(f'{i}') % 97 + 100 * i) for i in chosen]",
        r"the split 'train' has other tasks in another process, such as for 'number/\d+'",
    ),
    "tasks one by one": (
        MADE,
        MADE.replace("[Task", "(Task").replace("chosen]", "chosen)"),
        r"tasks\('train'\) gives a generator: return a list",
    ),
    "ids that are numbers": (MADE, MADE.replace('f"number/{i}"', "i"), r"a task's id is a string, got 1"),
    "one instance for all": (
        MAKE,
        "        self.made = getattr(self, 'made', None) or Guess(self.env.max_steps, self.highest)\n"
        "        return self.made",
        r"make_env returns the same instance again: it must make a new one every time",
    ),
}


@pytest.fixture
def check(call, tmp_path, monkeypatch):  # noqa: F811
    def check(text, *words):
        (tmp_path / "number.py").write_text(text, encoding="utf-8")
        (tmp_path / "beside.py").write_text("", encoding="utf-8")
        (tmp_path / "number.yaml").write_text(
            f"env: {{name: '{tmp_path / 'number.py'}:Numbers', max_steps: 8, options: {{highest: 30}}}}\n"
            "eval: {split: test}\n",
            encoding="utf-8",
        )
        return call("check-env", str(tmp_path / "number.yaml"), "-n", "2", *words)

    return check


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_ends_in_one_line_that_says_what_to_change(check, fault):
    sound, faulty, message = FAULTS[fault]
    assert NUMBERS.count(sound) == 1
    code, lines, error = check(NUMBERS.replace(sound, faulty))
    assert (code, lines) == (2, []), error
    assert len(error.strip().splitlines()) == 1
    assert re.search(message, error), error


def test_without_the_fault_it_is_content(check):
    code, lines, error = check(NUMBERS)
    assert (code, lines) == (0, ["Numbers keeps the contract on 4 tasks of train, test"]), error
    code, lines, error = check(NUMBERS, "--split", "train")
    assert lines == ["Numbers keeps the contract on 2 tasks of train"], error


@pytest.mark.parametrize(
    "words", [("alfworld_cpu", "env.difficulty=0"), ("webshop_cpu", "env.options.products=60")]
)
def test_the_worlds_of_the_project_are_sound(call, words):  # noqa: F811
    code, lines, error = call("check-env", *words, "env.max_steps=10", "-n", "1")
    assert code == 0, error
    assert "keeps the contract on 2 tasks" in lines[-1]


def room(name, split, start=1):
    return ToyTask(name, "near", split, 3, start, 2)


def test_tasks_are_compared_by_what_they_hold_and_how_they_play():
    same = {"train": [room("a", "train")], "test": [room("b", "test")]}
    with pytest.raises(NonConforming, match="'a' and 'b' differ in nothing but their names"):
        check_disjoint(ToyEnv, same)
    check_disjoint(ToyEnv, {"train": [room("a", "train")], "test": [room("b", "test", start=2)]})

    class ByName(ToyEnv):  # its rooms follow from the name of the task, which the fields do not say
        def reset(self, task, seed=0):
            return super().reset(room(task.id, task.split, 1 if task.id == "a" else 3), seed)

    check_disjoint(ByName, same)


def test_a_task_of_names_alone_holds_nothing_to_compare():
    class Bare:
        id, family, split = "a", "f", "train"

    assert content(Bare()) == ""
    assert content(room("a", "train")) == content(room("b", "test")) != content(room("a", "train", start=2))
