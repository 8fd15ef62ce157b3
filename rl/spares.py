"""Answers recorded beside the played ones, as rows to train on with a share of the step's advantage."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain

import numpy as np

from agent.turns import TurnFormat
from agent.types import Group
from rl.assemble import Advantage, TokenAdvantage, TokenRow


def with_spares(
    groups: Sequence[Group],
    rows: Sequence[TokenRow],
    advantage: Advantage,
    *,
    weigh: Callable[[np.ndarray], np.ndarray],
    turns: TurnFormat,
    mask_truncated: bool,
) -> tuple[list[TokenRow], Advantage]:
    """Shares the advantage of each step that has spare answers among all its answers.

    Args:
        groups: As in `rl.assemble.step_table`.
        rows: Of the played answers.
        advantage: One a step.
        weigh: Confidences of a step's answers, the played one first → their weights.
        turns: Decodes answers.
        mask_truncated: Leave spare answers out that were cut by length.

    Returns:
        Rows and advantages of the played answers, then of the spare ones. A spare row is all that its answer
        was made to see, with that answer alone under the loss: a sequence of its own, as in the public code.

    Raises:
        ValueError: advantages per token, which say nothing of other answers.
    """
    trajectories = sorted(chain.from_iterable(groups), key=lambda tr: (tr.group, tr.index))
    if not any(step.spare for tr in trajectories for step in tr.steps):
        return list(rows), advantage
    if isinstance(advantage, TokenAdvantage):
        raise ValueError(
            "the credit method gives an advantage per token, which cannot be shared with other answers to "
            "the same prompt: use a method that gives one per step"
        )
    shared, extra, extra_rows = np.array(advantage, dtype=np.float64), [], []
    step_row = 0
    for number, trajectory in enumerate(trajectories):
        seen: list[int] = []
        for step in trajectory.steps:
            seen = [*([] if step.fresh else seen), *step.prompt_ids]
            answers = [(step.response_ids, step.logp_sampled), *((s.ids, s.logps) for s in step.spare)]
            if step.spare:
                weights = weigh(np.array([confidence(ids, logps, turns) for ids, logps in answers]))
                shared[step_row] = advantage[step_row] * weights[0]
                for spare, weight in zip(step.spare, weights[1:], strict=True):
                    if mask_truncated and spare.finish == "length":
                        continue
                    before = [*seen, *spare.opening]
                    ids = np.asarray([*before, *spare.ids], dtype=np.int32)
                    span = (len(before), len(ids), len(shared) + len(extra))
                    logps = np.asarray(spare.logps, dtype=np.float32)
                    extra_rows.append(TokenRow(ids, (span,), logps, number))
                    extra.append(advantage[step_row] * weight)
            seen += step.response_ids
            step_row += 1
    return [*rows, *extra_rows], np.concatenate([shared, extra])


def confidence(ids: Sequence[int], logps: Sequence[float], turns: TurnFormat) -> float:
    """exp of the mean log-probability of the action's tokens, `</action>` included; 0 without an action."""
    start, end = turns.reach(ids, "<action>"), turns.reach(ids, "</action>")
    if start is None or end is None or end <= start:
        return 0.0
    return float(np.exp(np.mean(logps[start:end])))
