"""The one table every credit stage reads: a row is one agent step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import numpy as np


class _Terminal:
    """What follows the last step. An object, not a string, so no observation text can collide with it."""

    _instance: _Terminal | None = None

    def __new__(cls) -> _Terminal:
        if cls._instance is None:
            cls._instance = super().__new__(cls)
        return cls._instance

    def __repr__(self) -> str:
        return "TERMINAL"

    def __reduce__(self) -> tuple[type[_Terminal], tuple[()]]:
        return (_Terminal, ())  # one object even across processes


TERMINAL = _Terminal()

_NUMERIC = {
    "group": np.int64,
    "trajectory": np.int64,
    "t": np.int64,
    "length": np.int64,
    "reward": np.float64,
    "outcome": np.float64,
    "return_to_go": np.float64,
    "success": np.bool_,
    "valid": np.bool_,
    "padding": np.bool_,
    "votes": np.bool_,
}
_DEFAULTS = {"valid": True, "length": 1, "padding": False, "votes": True}
_TEXT = ("anchor", "next_anchor", "observation", "action")


@dataclass(frozen=True, eq=False)
class StepTable:
    """Columns of length N, one row per step, in any row order; read-only once built.

    Padding rows carry no meaning: no check reads them, no statistic sees them, their advantage is 0.

    Attributes:
        group: int [N], which group (K trajectories of one task and one initial state).
        trajectory: int [N], which trajectory; unique over the table, hence in one group only.
        t: int [N], step number in its trajectory, 0, 1, … without gaps.
        reward: float [N], the env's scalar at this step.
        outcome: float [N], the trajectory's return or score used as outcome reward (same in all its rows).
        success: bool [N], whether the trajectory solved its task (same in all its rows).
        anchor: str [N], the env's key of "the same place in the same situation" before the action.
        next_anchor: str or `TERMINAL` [N], the key after it. Default: the next row's, `TERMINAL` at the end.
        observation: str [N], the text shown before the action. Default: `anchor`.
        action: str [N], the parsed action. Default: empty.
        valid: bool [N], whether the action was valid. Default: all true.
        length: int [N], response tokens of the row, >= 0. Default: 1.
        return_to_go: float [N], NaN where no return is known yet (the default; a returns stage fills it).
        padding: bool [N], rows that are only there to fill a shape. Default: none.
        votes: bool [N], whether the row counts in statistics over peers. One that is not trained on may
            abstain: no mean, spread, count or whitening sees it, and its advantage is 0, while it stays part
            of its trajectory, of histories and graphs, and can be matched. A trajectory abstains where all of
            its rows do. Default: all vote.
        tokens: per-token float columns, each [sum(length)], rows one after another in row order.
    """

    group: np.ndarray
    trajectory: np.ndarray
    t: np.ndarray
    reward: np.ndarray
    outcome: np.ndarray
    success: np.ndarray
    anchor: np.ndarray
    next_anchor: np.ndarray | None = None
    observation: np.ndarray | None = None
    action: np.ndarray | None = None
    valid: np.ndarray | None = None
    length: np.ndarray | None = None
    return_to_go: np.ndarray | None = None
    padding: np.ndarray | None = None
    votes: np.ndarray | None = None
    tokens: Mapping[str, np.ndarray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        n = len(self.group)
        for name, dtype in _NUMERIC.items():
            values = getattr(self, name)
            if values is None:
                values = np.full(n, _DEFAULTS.get(name, np.nan))
            self._set(name, _numeric(name, values, n, dtype))
        order = _order(self)
        if self.observation is None:
            self._set("observation", self.anchor)
        if self.action is None:
            self._set("action", [""] * n)
        for name in ("anchor", "observation", "action"):
            self._set(name, _texts(name, getattr(self, name), n))
        _check_rows(self, order)
        if self.next_anchor is None:
            self._set("next_anchor", _next_anchor(self, order))
        self._set("next_anchor", _texts("next_anchor", self.next_anchor, n))
        total = int(self.length.sum())
        self._set(
            "tokens", {k: _numeric(f"tokens[{k!r}]", v, total, np.float64) for k, v in self.tokens.items()}
        )

    def _set(self, name: str, value: Any) -> None:
        if isinstance(value, np.ndarray):
            value.flags.writeable = False
        object.__setattr__(self, name, value)

    def __len__(self) -> int:
        return len(self.group)

    @property
    def weight(self) -> np.ndarray:
        """float [N]: 0 for padding, 1 for every real row."""
        return 1.0 - self.padding

    @cached_property
    def offsets(self) -> np.ndarray:
        """int [N+1]: tokens of row i are offsets[i]:offsets[i+1] of every token column."""
        return np.concatenate([[0], np.cumsum(self.length)])

    def canonical(self) -> tuple[StepTable, np.ndarray]:
        """The real rows sorted by (group, trajectory, t), as every stage sees them.

        Returns:
            The sorted table without padding, and `rows` int [M]: row i of it is row rows[i] of this one.
        """
        order = _order(self)
        table = object.__new__(StepTable)
        for column in fields(StepTable):
            value = getattr(self, column.name)
            if column.name == "tokens":
                index = self.token_index(order)
                table._set("tokens", {k: v[index] for k, v in value.items()})
            else:
                table._set(column.name, value[order])
        return table, order

    def token_index(self, rows: np.ndarray) -> np.ndarray:
        """int [sum(length[rows])]: where the tokens of these rows lie in a token column."""
        lengths = self.length[rows]
        shift = self.offsets[rows] - np.concatenate([[0], np.cumsum(lengths)[:-1]])[: len(rows)]
        return np.repeat(shift, lengths) + np.arange(int(lengths.sum()))

    @cached_property
    def trajectory_start(self) -> np.ndarray:
        """int [T+1]: trajectory k (in canonical order) is rows trajectory_start[k]:trajectory_start[k+1].

        Raises:
            ValueError: if the rows are not in canonical order.
        """
        starts = np.flatnonzero(self.t == 0)
        if self.padding.any() or not np.array_equal(_order(self), np.arange(len(self))):
            raise ValueError(
                "StepTable: rows not sorted by (group, trajectory, t), or padding, in a stage; "
                "run it through Pipeline, or on table.canonical()[0]"
            )
        return np.append(starts, len(self))

    @cached_property
    def trajectory_index(self) -> np.ndarray:
        """int [N]: 0..T-1, the row's trajectory in canonical order."""
        return np.repeat(np.arange(len(self.trajectory_start) - 1), np.diff(self.trajectory_start))

    @cached_property
    def trajectory_votes(self) -> np.ndarray:
        """bool [T]: whether any row of the trajectory votes, in canonical order."""
        return np.bincount(self.trajectory_index[self.votes], minlength=len(self.trajectory_start) - 1) > 0

    @cached_property
    def group_index(self) -> np.ndarray:
        """int [N]: 0..G-1, the row's group in canonical order."""
        return np.unique(self.group, return_inverse=True)[1]


def _order(table: StepTable) -> np.ndarray:
    order = np.lexsort((table.t, table.trajectory, table.group))
    return order[~table.padding[order]]


def _numeric(name: str, values: Any, n: int, dtype: type) -> np.ndarray:
    array = np.asarray(values)
    if array.shape != (n,):
        raise ValueError(
            f"StepTable.{name}: shape {array.shape}, expected ({n},); give one value per row "
            "(token columns: one per response token)"
        )
    if array.size and array.dtype.kind not in {np.int64: "iu", np.float64: "iufb", np.bool_: "biuf"}[dtype]:
        raise ValueError(
            f"StepTable.{name}: dtype {array.dtype}, expected {np.dtype(dtype).name}; convert the column"
        )
    if dtype is np.bool_ and array.size and not np.isin(array, (0, 1)).all():
        raise ValueError(f"StepTable.{name}: values other than 0 and 1; expected truth values")
    if name == "length" and array.size and array.min() < 0:
        raise ValueError(f"StepTable.length: got {array.min()}, expected >= 0 response tokens")
    return array.astype(dtype)


def _texts(name: str, values: Any, n: int) -> np.ndarray:
    values = list(values)
    if len(values) != n:
        raise ValueError(f"StepTable.{name}: {len(values)} values, expected {n}; give one per row")
    for row, value in enumerate(values):
        if not isinstance(value, str) and not (name == "next_anchor" and value is TERMINAL):
            raise ValueError(
                f"StepTable.{name}: row {row} holds {type(value).__name__}, expected str"
                + (" or TERMINAL" if name == "next_anchor" else "")
            )
    array = np.empty(n, dtype=object)
    array[:] = values
    return array


def _check_rows(table: StepTable, order: np.ndarray) -> None:
    """The rows form whole trajectories; `order` sorts the real ones by (group, trajectory, t)."""
    for name in ("reward", "outcome"):
        bad = order[~np.isfinite(getattr(table, name)[order])]
        if len(bad):
            raise ValueError(
                f"StepTable.{name}: row {bad.min()} is {getattr(table, name)[bad.min()]}, "
                "expected a finite number"
            )
    trajectory, t = table.trajectory[order], table.t[order]
    _, first, inverse = np.unique(trajectory, return_index=True, return_inverse=True)
    for name, what in (
        ("group", "lies in two groups"),
        ("outcome", "has two outcomes"),
        ("success", "is both a success and a failure"),
    ):
        column = getattr(table, name)[order]
        bad = np.flatnonzero(column != column[first][inverse])
        if len(bad):
            i = bad[0]
            raise ValueError(
                f"StepTable.{name}: trajectory {trajectory[i]} {what} ({column[first][inverse][i]} and "
                f"{column[i]}); expected one value per trajectory, and ids unique over the table"
            )
    expected = np.arange(len(t)) - first[inverse]
    bad = np.flatnonzero(t != expected)
    if len(bad):
        i = bad[0]
        what = "appears twice" if t[i] < expected[i] else "is missing"
        raise ValueError(
            f"StepTable.t: trajectory {trajectory[i]}: step {min(t[i], expected[i])} {what}; "
            "expected t = 0, 1, 2, … once each"
        )


def _next_anchor(table: StepTable, order: np.ndarray) -> np.ndarray:
    following = np.full(len(table), TERMINAL, dtype=object)
    inner = np.flatnonzero(table.t[order][1:] > 0)
    following[order[inner]] = table.anchor[order[inner + 1]]
    return following
