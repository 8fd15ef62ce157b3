"""Results of an evaluation: one record per attempt at a task, everything else counted from these records.

Rates are *task-weighted*: the mean over all tasks of the share of attempts that succeeded, never a mean over
families or over batches, so that a result cannot depend on how the tasks were chunked. Rates of steps (valid,
well-formed, admissible) are weighted by step in the same way.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType

from configs.errors import UserError
from eval.attempt_counts import AttemptCounts, TaskResult, by_task, task_value
from eval.statistics import CONFIDENCE, mean_interval, share_interval, wilson
from eval.table import attempts_table, family_table

__all__ = [
    "CONFIDENCE", "EvalError", "EvalResult", "AttemptCounts", "TaskResult", "check_ids", "load_evals",
    "mean_interval", "save_eval", "share_interval", "wilson",
]  # fmt: skip


class EvalError(UserError, ValueError):
    """An evaluation or a report was asked for what it cannot do; the message says what to change."""


def check_ids(ids: Sequence[str]) -> None:
    """Raises EvalError unless `ids` names at least one task, each once."""
    if not ids:
        raise EvalError(
            "nothing to evaluate: the split has no tasks. Check eval.split and eval.tasks, and that env.data "
            "has games for that split"
        )
    twice = [task_id for task_id, times in Counter(ids).items() if times > 1]
    if twice:
        raise EvalError(
            f"{len(twice)} tasks are listed twice, e.g. {twice[0]!r}: an evaluation plays each once"
        )


@dataclass(frozen=True)
class EvalResult:
    """One policy on one fixed list of tasks.

    Attributes:
        tasks: One record per attempt at a task, sorted by task id, then attempt. Never empty.
        seed: Seed of the evaluation.
        temperature: Sampling temperature (0: greedy).
        policy_version: Weights evaluated.
        seconds: Wall-clock; not part of equality.
    """

    tasks: tuple[TaskResult, ...]
    seed: int
    temperature: float
    policy_version: int
    seconds: float = field(default=0.0, compare=False)

    def __post_init__(self) -> None:
        records = tuple(sorted(self.tasks, key=lambda record: (record.task_id, record.attempt)))
        object.__setattr__(self, "tasks", records)
        check_ids([record.task_id for record in records if record.attempt == 0])
        numbers = {tuple(r.attempt for r in attempts) for attempts in self.by_task.values()}
        if numbers != {tuple(range(self.samples))}:
            raise EvalError(
                "every task needs the same attempts, numbered from 0: records are missing, or from several "
                "evaluations. Evaluate again"
            )

    @cached_property
    def by_task(self) -> dict[str, list[TaskResult]]:
        """Task id → its attempts in order, tasks sorted by id."""
        return by_task(self.tasks)

    @cached_property
    def samples(self) -> int:
        """Attempts at each task."""
        return len(next(iter(self.by_task.values())))

    @property
    def task_ids(self) -> list[str]:
        """The tasks played, sorted."""
        return list(self.by_task)

    def per_task(self, metric: str = "eval/success") -> dict[str, float]:
        """Returns task id → the value of which a metric is the mean over tasks.

        Args:
            metric: `eval/success` (the share of a task's attempts that succeeded), the same of one family,
                `eval/score`, `eval/pass_at/j` or `eval/pass_hat/j`, j up to `samples`.

        Raises:
            EvalError: another metric: it is no mean over tasks.
        """
        match = re.fullmatch(r"eval/(success|score|pass_at|pass_hat)(?:/(.+))?", metric)
        kind, detail = match.groups() if match else ("", None)
        value = task_value(kind, detail or "", self.samples)
        if value is None:
            raise EvalError(
                f"{metric} is no mean over tasks: eval/success, eval/success/FAMILY, eval/score, and with "
                "several attempts at a task (eval.samples) eval/pass_at/J and eval/pass_hat/J are"
            )
        family = detail if kind == "success" else None
        tasks = {i: r for i, r in self.by_task.items() if family in (None, r[0].family)}
        return {task_id: value(records) for task_id, records in tasks.items()}

    @cached_property
    def overall(self) -> AttemptCounts:
        """Counts over all tasks."""
        return AttemptCounts.of(self.tasks)

    @cached_property
    def per_family(self) -> dict[str, AttemptCounts]:
        """Counts per family, families in alphabetical order."""
        families: dict[str, list[TaskResult]] = {}
        for record in self.tasks:
            families.setdefault(record.family, []).append(record)
        return {family: AttemptCounts.of(families[family]) for family in sorted(families)}

    @property
    def n(self) -> int:
        """Tasks."""
        return self.overall.n

    @property
    def successes(self) -> int:
        """Attempts that solved their task; with one attempt at each, tasks solved."""
        return self.overall.successes

    @property
    def success(self) -> float:
        """Mean over tasks of the share of attempts that succeeded, in [0, 1]."""
        return self.overall.rate

    @property
    def ci(self) -> tuple[float, float]:
        """95 % interval of `success`, clustered by task; with one attempt at each, Wilson's."""
        return self.overall.lo, self.overall.hi

    @property
    def graded(self) -> bool:
        """Whether the score says more than success: some task earned part of it."""
        return any(task.score != float(task.success) for task in self.tasks)

    @property
    def tokens(self) -> int:
        """Tokens sampled."""
        return sum(task.tokens for task in self.tasks)

    def metrics(self) -> dict[str, float]:
        """Returns the figures a tracker logs, named `eval/…`."""
        overall = self.overall
        names = (
            "score",
            "score_lo",
            "score_hi",
            "mean_steps",
            "truncated",
            "well_formed",
            "admissible",
            "valid",
        )
        return {
            "eval/n": float(overall.n),
            "eval/success": overall.rate,
            "eval/success_lo": overall.lo,
            "eval/success_hi": overall.hi,
            **{f"eval/{name}": getattr(overall, name) for name in names},
            "eval/tokens": float(self.tokens),
            "eval/seconds": self.seconds,
            **{f"eval/success/{family}": counted.rate for family, counted in self.per_family.items()},
            **self._attempts(),
        }

    def _attempts(self) -> dict[str, float]:
        """What is logged of several attempts; nothing of a single one."""
        found = {"eval/samples": float(self.samples)} if self.samples > 1 else {}
        for rate in self.overall.passes:
            for name in ("at", "at_lo", "at_hi", "hat", "hat_lo", "hat_hi"):
                found[f"eval/pass_{name}/{rate.j}"] = getattr(rate, name)
        return found

    def to_json(self) -> str:
        """Returns the result as JSON; the counts are for people, `from_json` recounts them."""
        document = {
            "seed": self.seed,
            "temperature": self.temperature,
            "policy_version": self.policy_version,
            "seconds": self.seconds,
            "overall": asdict(self.overall),
            "per_family": {family: asdict(counted) for family, counted in self.per_family.items()},
            "tasks": [asdict(task) for task in self.tasks],
        }
        return json.dumps(document, indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> EvalResult:
        """Reads what `to_json` wrote.

        Raises:
            EvalError: it is not such a document.
        """
        try:
            document: dict[str, Any] = json.loads(text)
            tasks = tuple(TaskResult(**task) for task in document["tasks"])
            scalars = {key: document[key] for key in ("seed", "temperature", "policy_version", "seconds")}
        except (KeyError, TypeError, ValueError) as error:
            raise EvalError(f"not an evaluation result ({error!r}): save_eval did not write it") from error
        return cls(tasks=tasks, **scalars)

    def table(self, title: str | None = None) -> RenderableType:
        """Returns the result for the terminal: a row per family and one for all; below it pass@j, pass^j."""
        counted_by = {**self.per_family, "all tasks": self.overall}
        families = family_table(counted_by, title)
        return Group(families, attempts_table(counted_by)) if self.samples > 1 else families


def save_eval(run_dir: Path, update: int, result: EvalResult) -> Path:
    """Writes the evaluation made after `update` updates (0: the starting policy) into the run folder.

    Returns:
        `run_dir/eval/NNNN.json`.
    """
    path = Path(run_dir) / "eval" / f"{update:04d}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(result.to_json(), encoding="utf-8")
    return path


def load_evals(run_dir: Path) -> dict[int, EvalResult]:
    """Reads a run's evaluations, update → result, in order of update; empty if there are none."""
    results = {}
    for path in (Path(run_dir) / "eval").glob("[0-9]*.json"):
        try:
            results[int(path.stem)] = EvalResult.from_json(path.read_text(encoding="utf-8"))
        except EvalError as error:
            raise EvalError(f"{path}: {error}") from error
    return dict(sorted(results.items()))
