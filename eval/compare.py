"""Whether evaluations of the same tasks differ: two of them, or two policies' over several seeds.

What is drawn here are tasks, or tasks and training runs; `eval.statistics` holds the tests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from eval.result import EvalError, EvalResult
from eval.statistics import Spread, all_or_nothing, difference_over_both, difference_over_tasks

MCNEMAR, STUDENT = "McNemar's exact", "paired t over tasks"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two evaluations, or several of each side, of the same tasks.

    A task's success is its mean over all attempts at it.

    Attributes:
        n: Tasks.
        both: Solved as often, and not never, before and after.
        lost: Solved more often before.
        gained: Solved more often after.
        neither: Never solved.
        before: Success before.
        after: Success after.
        difference: Success after − success before.
        lo: Lower end of the 95 % interval of `difference` over tasks: these policies, other tasks.
        hi: Upper end.
        p: Two-sided p-value over tasks.
        test: Of which; see `eval.statistics.difference_over_tasks`.
        over_both: Interval and p over tasks and training runs; None for one pair of evaluations.
    """

    n: int
    both: int
    lost: int
    gained: int
    neither: int
    before: float
    after: float
    difference: float
    lo: float
    hi: float
    p: float
    test: str
    over_both: Spread | None


def compare(before: EvalResult, after: EvalResult) -> Comparison:
    """Compares two evaluations of the same tasks, task by task.

    Raises:
        EvalError: the two did not play the same tasks.
    """
    return compare_all([(before, after)])


def compare_all(pairs: Sequence[tuple[EvalResult, EvalResult]]) -> Comparison:
    """Compares several pairs of evaluations at once, such as one per seed, all of the same tasks.

    Raises:
        EvalError: there are no pairs, or not all evaluations played the same tasks.
    """
    if not pairs:
        raise EvalError("nothing to compare: no seed has both evaluations")
    ids = _common([result for pair in pairs for result in pair])
    before, after = (
        np.array([[rates[i] for i in ids] for rates in (pair[side].per_task() for pair in pairs)])
        for side in (0, 1)
    )
    # Rounded, so that 1 of 3 attempts is as often as 2 of 6.
    b, a = before.mean(axis=0).round(12), after.mean(axis=0).round(12)
    spread = difference_over_tasks(b, a)
    return Comparison(
        n=len(ids),
        both=int(((a == b) & (b > 0)).sum()),
        lost=int((a < b).sum()),
        gained=int((a > b).sum()),
        neither=int(((a == b) & (b == 0)).sum()),
        before=float(b.mean()),
        after=float(a.mean()),
        difference=float(a.mean() - b.mean()),
        lo=spread.lo,
        hi=spread.hi,
        p=spread.p,
        test=MCNEMAR if all_or_nothing(b) and all_or_nothing(a) else STUDENT,
        over_both=difference_over_both(after - before),
    )


def task_rates(results: Sequence[EvalResult]) -> dict[str, float]:
    """Returns each task's success, the mean over all attempts at it in `results`."""
    attempts: dict[str, list[float]] = {}
    for result in results:
        for task in result.tasks:
            attempts.setdefault(task.task_id, []).append(float(task.success))
    return {task_id: float(np.mean(successes)) for task_id, successes in attempts.items()}


def disjoint(a: EvalResult, b: EvalResult) -> bool:
    """Whether the 95 % intervals of the two success rates do not touch."""
    return a.ci[1] < b.ci[0] or b.ci[1] < a.ci[0]


def _common(results: Sequence[EvalResult]) -> list[str]:
    """Returns the ids of the tasks that all results have."""
    ids = set(results[0].task_ids)
    for result in results[1:]:
        odd = sorted(ids ^ set(result.task_ids))
        if odd:
            raise EvalError(
                f"paired comparison needs the same tasks; {len(odd)} are in one evaluation only, e.g. "
                f"{odd[0]!r}: evaluate all policies with the same eval.split, eval.tasks and env.data"
            )
    return sorted(ids)
