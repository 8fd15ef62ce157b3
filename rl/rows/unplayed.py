"""Turns unplayed responses into extra training rows that share the step's advantage."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain

import numpy as np

from agent.prompts.turns import TurnFormat
from agent.types import Group, Trajectory
from rl.rows.assemble import Advantage, TokenAdvantage, TokenRow


def unplayed_rows(groups: Sequence[Group], *, first: int, mask_truncated: bool) -> list[TokenRow]:
    """Rows of the unplayed responses of all steps.

    Args:
        groups: As in `rl.rows.assemble.step_table`.
        first: Step row of the first unplayed response: the length of the step table.
        mask_truncated: Leave unplayed responses out that were cut by length.

    Returns:
        For each all that it was made to see, with that answer alone under the loss: a sequence of its own, as
        in the public code.
    """
    rows: list[TokenRow] = []
    step_row = first
    for number, trajectory in enumerate(_ordered(groups)):
        seen: list[int] = []
        for step in trajectory.steps:
            seen = [*([] if step.fresh else seen), *step.prompt_ids]
            for unplayed in step.unplayed:
                if not (mask_truncated and unplayed.finish == "length"):
                    before = [*seen, *unplayed.opening]
                    ids = np.asarray([*before, *unplayed.ids], dtype=np.int32)
                    logps = np.asarray(unplayed.logps, dtype=np.float32)
                    rows.append(TokenRow(ids, ((len(before), len(ids), step_row),), logps, number))
                step_row += 1
            seen += step.response_ids
    return rows


def share_advantage(
    groups: Sequence[Group],
    advantage: Advantage,
    *,
    weigh: Callable[[np.ndarray], np.ndarray],
    turns: TurnFormat,
) -> Advantage:
    """Shares the advantage of each step that has unplayed responses among all its answers.

    Args:
        groups: As in `rl.rows.assemble.step_table`.
        advantage: One per step.
        weigh: Confidences of a step's answers, the played one first → their weights.
        turns: Decodes answers.

    Returns:
        Advantages of the played answers, then of all unplayed ones, as `unplayed_rows` numbers them.

    Raises:
        ValueError: advantages per token, which say nothing of other answers.
    """
    steps = [step for trajectory in _ordered(groups) for step in trajectory.steps]
    if not any(step.unplayed for step in steps):
        return advantage
    if isinstance(advantage, TokenAdvantage):
        raise ValueError(
            "the credit method gives an advantage per token, which cannot be shared with other answers to "
            "the same prompt: use a method that gives one per step"
        )
    shared, extra = np.array(advantage, dtype=np.float64), []
    for step_row, step in enumerate(steps):
        if step.unplayed:
            answers = [(step.response_ids, step.logp_sampled), *((s.ids, s.logps) for s in step.unplayed)]
            weights = weigh(np.array([confidence(ids, logps, turns) for ids, logps in answers]))
            shared[step_row] = advantage[step_row] * weights[0]
            extra += [advantage[step_row] * weight for weight in weights[1:]]
    return np.concatenate([shared, extra])


def confidence(ids: Sequence[int], logps: Sequence[float], turns: TurnFormat) -> float:
    """exp of the mean log-probability of the action's tokens, `</action>` included; 0 without an action."""
    start, end = turns.reach(ids, "<action>"), turns.reach(ids, "</action>")
    if start is None or end is None or end <= start:
        return 0.0
    return float(np.exp(np.mean(logps[start:end])))


def _ordered(groups: Sequence[Group]) -> list[Trajectory]:
    return sorted(chain.from_iterable(groups), key=lambda tr: (tr.group, tr.index))
