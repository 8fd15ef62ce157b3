"""StepTable: what it accepts, what it says when it does not, and its canonical order."""

import pickle

import numpy as np
import pytest

from credit.table import TERMINAL, StepTable


def columns(**changes):
    base = {
        "group": [0, 0, 0],
        "trajectory": [0, 0, 1],
        "t": [0, 1, 0],
        "reward": [0.0, 10.0, 0.0],
        "outcome": [10.0, 10.0, 0.0],
        "success": [True, True, False],
        "anchor": ["a", "b", "a"],
    }
    return base | changes


def test_defaults():
    table = StepTable(**columns())
    assert table.next_anchor.tolist() == ["b", TERMINAL, TERMINAL]
    assert table.observation.tolist() == ["a", "b", "a"]
    assert table.valid.all() and not table.padding.any() and table.weight.tolist() == [1, 1, 1]
    assert np.isnan(table.return_to_go).all()
    assert table.offsets.tolist() == [0, 1, 2, 3]


def test_it_is_read_only():
    table = StepTable(**columns())
    with pytest.raises(ValueError, match="read-only"):
        table.reward[0] = 5.0
    with pytest.raises(AttributeError):
        table.reward = np.zeros(3)


def test_the_callers_arrays_are_neither_frozen_nor_shared():
    reward = np.array([0.0, 10.0, 0.0])
    table = StepTable(**columns(reward=reward))
    reward[0] = 7.0
    assert table.reward[0] == 0.0


def test_terminal_is_no_string_and_one_object_after_pickling():
    assert TERMINAL != "TERMINAL" and repr(TERMINAL) == "TERMINAL"
    assert pickle.loads(pickle.dumps(TERMINAL)) is TERMINAL


def test_next_anchor_follows_the_trajectory_not_the_row_order():
    table = StepTable(
        group=[0] * 4,
        trajectory=[1, 0, 0, 1],
        t=[1, 1, 0, 0],
        reward=[0] * 4,
        outcome=[0] * 4,
        success=[0] * 4,
        anchor=["d", "b", "a", "c"],
    )
    assert table.next_anchor.tolist() == [TERMINAL, TERMINAL, "b", "d"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"reward": [0.0, 1.0]}, r"reward: shape \(2,\), expected \(3,\)"),
        ({"anchor": ["a"]}, "anchor: 1 values, expected 3"),
        ({"anchor": ["a", 3, "b"]}, "anchor: row 1 holds int, expected str"),
        (
            {"next_anchor": ["a", None, TERMINAL]},
            "next_anchor: row 1 holds NoneType, expected str or TERMINAL",
        ),
        ({"t": [0.0, 1.0, 0.0]}, "t: dtype float64, expected int64"),
        ({"success": [2, 2, 0]}, "success: values other than 0 and 1"),
        ({"reward": [0.0, np.nan, 0.0]}, "reward: row 1 is nan, expected a finite number"),
        ({"t": [0, 0, 0]}, "trajectory 0: step 0 appears twice"),
        ({"t": [0, 2, 0]}, "trajectory 0: step 1 is missing"),
        ({"t": [1, 2, 0]}, "trajectory 0: step 0 is missing"),
        ({"group": [0, 1, 0]}, "trajectory 0 lies in two groups"),
        ({"outcome": [10.0, 9.0, 0.0]}, "trajectory 0 has two outcomes"),
        ({"success": [True, False, False]}, "trajectory 0 is both a success and a failure"),
        ({"length": [1, -1, 1]}, "length: got -1"),
        (
            {"length": [2, 1, 1], "tokens": {"entropy": [0.1, 0.2]}},
            r"tokens\['entropy'\]: shape \(2,\), expected \(4,\)",
        ),
    ],
)
def test_errors_say_where_and_what(changes, message):
    with pytest.raises(ValueError, match=message):
        StepTable(**columns(**changes))


def test_padding_rows_are_not_checked_and_leave_the_canonical_table():
    table = StepTable(
        group=[0, 9, 0],
        trajectory=[0, 0, 0],
        t=[1, 0, 0],
        reward=[10.0, np.nan, 0.0],
        outcome=[10.0, np.nan, 10.0],
        success=[1, 0, 1],
        anchor=["b", "", "a"],
        length=[2, 0, 3],
        padding=[False, True, False],
        tokens={"entropy": [1.0, 2.0, 3.0, 4.0, 5.0]},
    )
    assert table.weight.tolist() == [1, 0, 1]
    canonical, rows = table.canonical()
    assert rows.tolist() == [2, 0]
    assert canonical.anchor.tolist() == ["a", "b"]
    assert canonical.tokens["entropy"].tolist() == [3.0, 4.0, 5.0, 1.0, 2.0]
    assert canonical.trajectory_start.tolist() == [0, 2]
    with pytest.raises(ValueError, match="not sorted"):
        _ = table.trajectory_start
