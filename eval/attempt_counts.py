"""The record of one attempt at a task, and counts over many attempts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from eval.pass_rates import PassRate, pass_at, pass_hat, pass_rates
from eval.statistics import mean_interval, share_interval


@dataclass(frozen=True, slots=True)
class TaskResult:
    """One attempt at a task.

    Attributes:
        task_id: The task.
        family: Its family.
        success: Solved.
        score: Task score in [0, 1].
        truncated: Ended by the step limit.
        steps: Steps played.
        well_formed: Steps whose response had the required tags.
        admissible: Steps whose action was in the environment's list.
        valid: Steps that were both.
        tokens: Tokens sampled.
        attempt: Its number, from 0.
    """

    task_id: str
    family: str
    success: bool
    score: float
    truncated: bool
    steps: int
    well_formed: int
    admissible: int
    valid: int
    tokens: int
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class AttemptCounts:
    """Counts over a set of tasks, each attempted equally often.

    Attributes:
        n: Tasks.
        samples: Attempts at each.
        successes: Attempts that solved their task; with one attempt, tasks solved.
        rate: Mean over tasks of the share of attempts that succeeded.
        lo: Lower end of the 95 % interval of `rate`, clustered by task; with one attempt, Wilson's.
        hi: Upper end.
        score: Mean score over tasks, of each the mean of its attempts.
        score_lo: Lower end of its 95 % interval: `mean_interval`, or with several attempts as `lo`.
        score_hi: Upper end.
        mean_steps: Mean steps of an attempt, successful or not.
        truncated: Share of attempts ended by the step limit.
        well_formed: Share of steps with the required tags.
        admissible: Share of steps whose action was admissible.
        valid: Share of steps that were both.
        passes: pass@j and pass^j, see `eval.pass_rates.pass_rates`; empty with one attempt.
    """

    n: int
    samples: int
    successes: int
    rate: float
    lo: float
    hi: float
    score: float
    score_lo: float
    score_hi: float
    mean_steps: float
    truncated: float
    well_formed: float
    admissible: float
    valid: float
    passes: tuple[PassRate, ...] = ()

    @classmethod
    def of(cls, records: Iterable[TaskResult]) -> AttemptCounts:
        """Counts `records`: of at least one task, of each the same number of attempts."""
        tasks = by_task(records)
        records = [record for attempts in tasks.values() for record in attempts]
        n, played = len(tasks), len(records)
        samples = played // n
        solved = [_solved(attempts) for attempts in tasks.values()]
        # A task can end before its first step (its prompt does not fit); then no step was valid.
        steps = sum(record.steps for record in records)
        lo, hi = share_interval([c / samples for c in solved], samples)
        scores = [sum(record.score for record in attempts) / samples for attempts in tasks.values()]
        # Tasks that all come out alike in a few attempts have no spread: Student's interval would be a point.
        score_lo, score_hi = share_interval(scores, samples) if samples > 1 else mean_interval(scores)
        return cls(
            n=n,
            samples=samples,
            successes=sum(solved),
            rate=sum(solved) / played,
            lo=lo,
            hi=hi,
            score=sum(scores) / n,
            score_lo=score_lo,
            score_hi=score_hi,
            mean_steps=steps / played,
            truncated=sum(record.truncated for record in records) / played,
            well_formed=sum(record.well_formed for record in records) / max(steps, 1),
            admissible=sum(record.admissible for record in records) / max(steps, 1),
            valid=sum(record.valid for record in records) / max(steps, 1),
            passes=pass_rates(solved, samples),
        )


def by_task(records: Iterable[TaskResult]) -> dict[str, list[TaskResult]]:
    """Returns task id → its records, in the order given."""
    tasks: dict[str, list[TaskResult]] = {}
    for record in records:
        tasks.setdefault(record.task_id, []).append(record)
    return tasks


def task_value(kind: str, detail: str, samples: int) -> Callable[[Sequence[TaskResult]], float] | None:
    """Returns what turns a task's records into the value whose mean over tasks is a metric.

    Args:
        kind: The metric without `eval/` and `detail`.
        detail: What follows: a family, or the number of attempts.
        samples: Attempts at each task.

    Returns:
        The function; None if no metric of that name is a mean over tasks.
    """
    if kind == "success":
        return lambda records: _solved(records) / len(records)
    if kind == "score" and not detail:
        return lambda records: sum(record.score for record in records) / len(records)
    estimate = {"pass_at": pass_at, "pass_hat": pass_hat}.get(kind)
    if estimate and detail.isdecimal() and 1 <= int(detail) <= samples:
        return lambda records: estimate(_solved(records), len(records), int(detail))
    return None


def _solved(records: Sequence[TaskResult]) -> int:
    return sum(record.success for record in records)
