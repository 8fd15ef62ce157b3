"""From trajectories to what credit reads (a table, one row per step) and what the loss reads (token rows).

Rows of the table are in the order (group, trajectory index, t). Token ids are those sampled; nothing is
re-tokenised. In the append-only form a token row is a whole trajectory with one response span a step; in
the step-wise form every step has a row of its own. Both come from `Step.fresh`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from operator import itemgetter
from typing import ClassVar

import numpy as np

from agent.types import Group, Step, Trajectory
from credit.pipeline import CreditResult
from credit.table import TERMINAL, StepTable


@dataclass(frozen=True, slots=True)
class TokenRow:
    """Tokens of one forward row and which of them are trained on.

    Attributes:
        ids: int32 [L], prompt and response tokens as they were seen and sampled.
        spans: (start, end, step_row) of every piece of a response under the loss: `ids[start:end]` were
            sampled at row `step_row` of the step table. In order, disjoint, never empty, start ≥ 1.
        logp_sampled: float32, log-probabilities of the span tokens when sampled, spans concatenated.
        trajectory: Number of the trajectory over the whole table; mini-batches never split one.
    """

    ids: np.ndarray
    spans: tuple[tuple[int, int, int], ...]
    logp_sampled: np.ndarray
    trajectory: int

    @property
    def responses(self) -> list[tuple[int, list[tuple[int, int]]]]:
        """(step_row, pieces) of every response under the loss, each piece a [start, end).

        A response has several pieces where some of it was forced; to the loss it is one sequence.
        """
        by_step = groupby(self.spans, key=itemgetter(2))
        return [(step_row, [span[:2] for span in spans]) for step_row, spans in by_step]


@dataclass(frozen=True, slots=True)
class TokenColumn:
    """One number per response token.

    Attributes:
        values: float64 [Σ length], laid out like the step table's token columns.
        offsets: int64 [N + 1], row n owns `values[offsets[n]:offsets[n + 1]]`.
    """

    values: np.ndarray
    offsets: np.ndarray
    meaning: ClassVar[str] = "token values"

    def of(self, step_row: int, length: int) -> np.ndarray:
        """The numbers of the `length` response tokens of one step, float64 [length]."""
        start, end = self.offsets[step_row], self.offsets[step_row + 1]
        if end - start != length:
            raise ValueError(f"step row {step_row} has {length} tokens but {end - start} {self.meaning}")
        return self.values[start:end]


class TokenAdvantage(TokenColumn):
    """One advantage a response token."""

    __slots__ = ()
    meaning = "token advantages"


class TokenWeight(TokenColumn):
    """Weight of each response token in the auxiliary loss, see `rl.learner.loss.auxiliary_loss`."""

    __slots__ = ()
    meaning = "auxiliary token weights"


Advantage = np.ndarray | TokenAdvantage
"""[N] one per step, or one per response token."""


def by_token(
    groups: Sequence[Group], rows: Sequence[TokenRow], values: Sequence[np.ndarray]
) -> list[list[float | None]]:
    """Deals values of token rows out to the steps.

    Args:
        groups: Of one rollout.
        rows: `token_rows` of them, nothing masked.
        values: For each row, one per span token, laid out like `TokenRow.logp_sampled`.

    Returns:
        For each step, in the order of `step_table`, one per response token: None where the token was not
        sampled.
    """
    pieces: dict[int, list[float]] = {}
    for row, value_T in zip(rows, values, strict=True):
        first = 0
        for start, end, step_row in row.spans:
            pieces.setdefault(step_row, []).extend(value_T[first : first + end - start].tolist())
            first += end - start
    result: list[list[float | None]] = []
    trajectories = sorted((tr for group in groups for tr in group), key=lambda tr: (tr.group, tr.index))
    for number, step in enumerate(step for tr in trajectories for step in tr.steps):
        found = iter(pieces.get(number, ()))
        whole: list[float | None] = [None] * len(step.response_ids)
        for start, end in step.sampled:
            whole[start:end] = [next(found) for _ in range(start, end)]
        result.append(whole)
    return result


def advantage_of(table: StepTable, credit: CreditResult) -> Advantage:
    """What the learner trains on: per token if the credit method speaks per token, else per step."""
    if credit.token_advantage is None:
        return credit.advantage
    return TokenAdvantage(credit.token_advantage, table.offsets)


def aux_of(table: StepTable, credit: CreditResult) -> TokenWeight | None:
    """The weights of the method's auxiliary losses, None if it has none."""
    return None if credit.aux_weight is None else TokenWeight(credit.aux_weight, table.offsets)


def span_advantage(advantage: Advantage, step_row: int, length: int) -> np.ndarray:
    """The advantage of each of the `length` response tokens of one step, float64 [length]."""
    if isinstance(advantage, TokenAdvantage):
        return advantage.of(step_row, length)
    return np.full(length, advantage[step_row], dtype=np.float64)


def step_table(
    groups: Sequence[Group], *, success_reward: float = 10.0, voters: Sequence[TokenRow] | None = None
) -> StepTable:
    """Builds the credit table of an update.

    Args:
        groups: Trajectories with at least one step each.
        success_reward: Scale of rewards: a success is worth 10 in the papers (GiGPO and its kin), while
            environments pay 1.
        voters: What is trained on, `token_rows` of the same groups (and their
        `rl.rows.unplayed.unplayed_rows`), or
            some of them: a step without a token in it abstains from the statistics of credit. None: all vote.

    Returns:
        One row per step, in the order (group, trajectory index, t). `outcome` is the scaled sum of the
        trajectory's rewards; `next_anchor` after the last step of a success is the terminal sentinel,
        after any other step it is the anchor of what the environment answered.

    Raises:
        ValueError: a trajectory has no steps.
    """
    rows = [(number, tr, step) for number, tr in enumerate(_ordered(groups)) for step in tr.steps]
    outcome = {n: success_reward * sum(s.reward for s in tr.steps) for n, tr, _ in rows}

    def following(tr: Trajectory, t: int, anchor: str) -> object:
        return TERMINAL if tr.success and t == len(tr.steps) - 1 else anchor

    return StepTable(
        group=np.array([tr.group for _, tr, _ in rows], dtype=np.int64),
        trajectory=np.array([number for number, _, _ in rows], dtype=np.int64),
        t=np.array([s.t for _, _, s in rows], dtype=np.int64),
        reward=np.array([success_reward * s.reward for _, _, s in rows], dtype=np.float64),
        outcome=np.array([outcome[number] for number, _, _ in rows], dtype=np.float64),
        success=np.array([tr.success for _, tr, _ in rows], dtype=bool),
        anchor=_objects([s.observation.anchor for _, _, s in rows]),
        next_anchor=_objects([following(tr, s.t, s.next_observation.anchor) for _, tr, s in rows]),
        observation=_objects([s.observation.text for _, _, s in rows]),
        action=_objects([s.action for _, _, s in rows]),
        valid=np.array([s.valid for _, _, s in rows], dtype=bool),
        length=np.array([len(s.response_ids) for _, _, s in rows], dtype=np.int64),
        votes=None if voters is None else _votes([len(s.unplayed) for _, _, s in rows], voters),
    )


def _votes(unplayed: Sequence[int], voters: Sequence[TokenRow]) -> np.ndarray:
    """bool [N]: steps with a token in `voters`; `unplayed` is how many unplayed responses each step has."""
    steps = np.arange(len(unplayed))
    owner = np.concatenate([steps, np.repeat(steps, unplayed)])
    trained = np.array([step_row for row in voters for _, _, step_row in row.spans], dtype=np.int64)
    return np.isin(steps, owner[trained])


def token_rows(groups: Sequence[Group], *, mask_truncated: bool = True) -> list[TokenRow]:
    """Lays the tokens of an update out in rows; a `fresh` step opens a new one.

    Args:
        groups: The same groups as in `step_table`, in any order.
        mask_truncated: Leave responses cut by length out of the loss (they stay as context).

    Returns:
        Rows in table order; rows without a token under the loss are left out.

    Raises:
        ValueError: a trajectory that does not start fresh, a prompt without tokens before a response, or
            log-probabilities that do not match the tokens one to one.
    """
    rows: list[TokenRow] = []
    step_row = 0
    for number, trajectory in enumerate(_ordered(groups)):
        ids: list[int] = []
        spans: list[tuple[int, int, int]] = []
        logps: list[float] = []
        for position, step in enumerate(trajectory.steps):
            _check_step(trajectory, step, position, row_open=bool(ids))
            if step.fresh:
                _close(rows, ids, spans, logps, number)
                ids, spans, logps = [], [], []
            ids.extend(step.prompt_ids)
            start, end = len(ids), len(ids) + len(step.response_ids)
            if end > start and not (mask_truncated and step.finish == "length"):
                if start == 0:
                    raise ValueError(f"{_name(trajectory)} step {step.t} opens a row without a prompt")
                for first, last in step.sampled:
                    spans.append((start + first, start + last, step_row))
                    logps.extend(step.logp_sampled[first:last])
            ids.extend(step.response_ids)
            step_row += 1
        _close(rows, ids, spans, logps, number)
    return rows


def _close(
    rows: list[TokenRow], ids: list[int], spans: list[tuple[int, int, int]], logps: list[float], number: int
) -> None:
    if spans:
        ids_L = np.asarray(ids, dtype=np.int32)
        rows.append(TokenRow(ids_L, tuple(spans), np.asarray(logps, dtype=np.float32), number))


def _ordered(groups: Sequence[Group]) -> list[Trajectory]:
    trajectories = sorted(chain.from_iterable(groups), key=lambda tr: (tr.group, tr.index))
    for trajectory in trajectories:
        if not trajectory.steps:
            raise ValueError(f"{_name(trajectory)} has no steps; drop it before assembly")
    return trajectories


def _check_step(trajectory: Trajectory, step: Step, position: int, *, row_open: bool) -> None:
    where = f"{_name(trajectory)} step {step.t}"
    if step.t != position:
        raise ValueError(f"{where} is at position {position}: steps must count t = 0, 1, 2, …")
    if not row_open and not step.fresh:
        raise ValueError(f"{where} continues a row that nothing opened: first steps are fresh")
    if len(step.logp_sampled) != len(step.response_ids):
        raise ValueError(
            f"{where} has {len(step.response_ids)} response tokens but {len(step.logp_sampled)} "
            "log-probabilities; the policy must return one per sampled token"
        )


def _name(trajectory: Trajectory) -> str:
    return f"trajectory {trajectory.index} of group {trajectory.group} ({trajectory.task_id})"


def _objects(values: Sequence[object]) -> np.ndarray:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array
