"""Trajectories made elsewhere: the file's schema, what it means, and what is refused."""

import math
import random
import re
from pathlib import Path

import numpy as np
import pytest

from credit.pipeline import Pipeline
from credit.table import StepTable
from eval.replay.recorded import Facts
from eval.replay.trajectory_file import SCHEMA, TrajectoryFile
from eval.result import EvalError
from tests.eval.made import made, written

ROOT = Path(__file__).resolve().parents[2]
GIGPO = {"returns": {}, "gigpo": {}}


def test_a_file_is_the_table_it_spells(tmp_path):
    rows = made()
    (recorded,) = TrajectoryFile(written(tmp_path, rows)).read()
    table = StepTable(
        group=np.zeros(5, int),
        trajectory=np.array([0, 0, 0, 1, 1]),
        t=np.array([0, 1, 2, 0, 1]),
        reward=np.array([0.0, 0, 10, 0, 0]),
        outcome=np.array([10.0, 10, 10, 0, 0]),
        success=np.array([True, True, True, False, False]),
        anchor=[row["anchor"] for row in rows],
        action=[row["action"] for row in rows],
    )
    for name in ("group", "trajectory", "t", "reward", "outcome", "success", "valid", "length", "anchor"):
        assert getattr(recorded.table, name).tolist() == getattr(table, name).tolist(), name
    assert recorded.table.next_anchor.tolist() == table.next_anchor.tolist()
    assert recorded.table.observation.tolist() == table.anchor.tolist()
    assert recorded.facts == {0: Facts("g", "win", 0), 1: Facts("g", "loss", 1)}
    pipeline = Pipeline.from_config(GIGPO)
    assert pipeline.run(recorded.table).advantage.tolist() == pipeline.run(table).advantage.tolist()


def test_rows_of_an_update_may_lie_anywhere(tmp_path):
    rows = made(update=2) + made(update=1, group="h", trajectories=(("win", 4), ("loss", 4)))
    shuffled = random.Random(0).sample(rows, len(rows))
    file = TrajectoryFile(written(tmp_path, shuffled, row_group_size=4))
    assert file.updates() == [1, 2]
    for update, recorded in zip((1, 2), file.read(), strict=True):
        assert recorded.update == update
        for i, row in enumerate(recorded.row.tolist()):
            assert shuffled[row]["action"] == recorded.table.action[i]
            assert shuffled[row]["update"] == update
    assert [recorded.update for recorded in file.read(range(2, 9))] == [2]


def test_optional_columns(tmp_path):
    rows = made(trajectories=(("win", 2),))
    extra = [
        {
            "next_anchor": "room 9",
            "valid": False,
            "outcome": 7,
            "logp_sampled": [-1.0, -2.0],
            "family": "far",
        },
        {"next_anchor": None, "valid": True, "outcome": 7, "logp_sampled": [], "family": None},
    ]
    rows = [
        {**row, **more, "tokens.entropy": more["logp_sampled"]} for row, more in zip(rows, extra, strict=True)
    ]
    file = TrajectoryFile(written(tmp_path, rows))
    assert file.tokens == {"logp_sampled", "entropy"}
    (recorded,) = file.read()
    table = recorded.table
    assert [str(value) for value in table.next_anchor] == ["room 9", "TERMINAL"]
    assert table.valid.tolist() == [False, True]
    assert table.outcome.tolist() == [7, 7]
    assert table.length.tolist() == [2, 0]
    assert table.tokens["entropy"].tolist() == [-1, -2]
    assert recorded.facts[0].family == "far"


def changed(row, **values):
    def change(rows):
        rows[row].update(values)
        return rows

    return change


def without(name):
    return lambda rows: [{key: value for key, value in row.items() if key != name} for row in rows]


def renamed(old, new):
    return lambda rows: [{new if key == old else key: value for key, value in row.items()} for row in rows]


# rows 0-4 are update 1 and rows 5-9 update 2: trajectories "win" (3 steps) and "loss" (2) in each
REFUSED = {
    "NaN reward": (changed(6, reward=math.nan), ["row 6", "reward", "nan"]),
    "infinite reward": (changed(9, reward=math.inf), ["row 9", "inf"]),
    "no reward": (changed(7, reward=None), ["row 7", "reward is missing"]),
    "no observation": (changed(8, anchor=None), ["row 8", "anchor is missing"]),
    "a step twice": (changed(7, t=1), ["row 6, 7", "'win'", "step 1 appears twice"]),
    "a gap": (changed(7, t=3), ["row 7", "'win'", "step 2 is missing"]),
    "no beginning": (changed(8, t=2), ["'loss'", "step 0 is missing", "row 9"]),
    "a negative step": (changed(8, t=-1), ["row 8", "'loss'", "step -1"]),
    "two groups": (changed(9, group="other"), ["row 8, 9", "'loss'", "two groups", "'g'", "'other'"]),
    "two outcomes": (changed(9, success=True), ["row 8, 9", "'loss'", "success", "False", "True"]),
    "missing column": (without("reward"), ["no column 'reward'"]),
    "misspelt column": (renamed("success", "succes"), ["no column 'success'", "did you mean 'succes'?"]),
    "neither anchor nor observation": (without("anchor"), ["'anchor'", "'observation'"]),
    "text for numbers": (
        lambda rows: [{**row, "reward": "1"} for row in rows],
        ["'reward'", "string", "number"],
    ),
    "numbers for truth": (
        lambda rows: [{**row, "success": 1} for row in rows],
        ["'success'", "int64", "truth"],
    ),
    "no update": (changed(4, update=None), ["row 4", "update is missing"]),
    "unequal token lists": (
        lambda rows: [
            {**row, "logp_sampled": [-1.0], "tokens.entropy": [0.5] * (1 + (i == 6))}
            for i, row in enumerate(rows)
        ],
        ["row 6", "1 numbers in 'logp_sampled'", "2 by 'tokens.entropy'"],
    ),
    "wrong length": (
        lambda rows: [{**row, "logp_sampled": [-1.0], "length": 1 + (i == 3)} for i, row in enumerate(rows)],
        ["row 3", "1 numbers in 'logp_sampled'", "2 by 'length'"],
    ),
}


@pytest.mark.parametrize(("change", "parts"), REFUSED.values(), ids=REFUSED.keys())
def test_a_broken_rule_is_refused_with_its_row(tmp_path, change, parts):
    path = written(tmp_path, change(made(1) + made(2)))
    with pytest.raises(EvalError) as caught:
        list(TrajectoryFile(path).read())
    for part in (str(path), *parts):
        assert part in str(caught.value)


def test_a_row_is_the_files_whatever_the_order(tmp_path):
    rows = made(2) + made(1)
    rows[1]["reward"] = math.nan
    with pytest.raises(EvalError, match="row 1 is nan"):
        list(TrajectoryFile(written(tmp_path, rows)).read())


def test_what_is_no_parquet_file(tmp_path):
    with pytest.raises(EvalError, match=r"no file .*docs/replay\.md"):
        TrajectoryFile(tmp_path / "none.parquet")
    (tmp_path / "made.parquet").write_text("group,trajectory\n")
    with pytest.raises(EvalError, match="no parquet file"):
        TrajectoryFile(tmp_path / "made.parquet")


def test_unknown_columns_are_named_with_what_they_may_mean(tmp_path):
    file = TrajectoryFile(written(tmp_path, made(vaild=True, colour="red")))
    assert "did you mean 'valid'" in file.ignored["vaild"]
    assert set(file.ignored) == {"vaild", "colour"}


def test_the_documents_list_every_column():
    text = (ROOT / "docs" / "replay.md").read_text(encoding="utf-8")
    for name, column in SCHEMA.items():
        (line,) = [line for line in text.splitlines() if line.startswith(f"| `{name}` |")]
        assert column.doc in line
        assert ("required" in line) == column.needed
        assert ("or null" in line) == column.nulls


def test_the_documents_example_is_a_valid_file(tmp_path, monkeypatch):
    text = (ROOT / "docs" / "replay.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "docs/replay.md", "exec"), {})
    (recorded,) = TrajectoryFile(tmp_path / "made.parquet").read()
    assert len(recorded.table) == 3
