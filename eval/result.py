"""Results of an evaluation: one record a task, everything else counted from these records.

Rates are *task-weighted*: successes of all tasks over all tasks, never a mean over families or over
batches, so that a result cannot depend on how the tasks were chunked. Rates of steps (valid,
well-formed, admissible) are weighted by step in the same way.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from rich.table import Table

from eval.statistics import mean_interval, wilson


class EvalError(ValueError):
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


@dataclass(frozen=True, slots=True)
class TaskResult:
    """One task, played once.

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


@dataclass(frozen=True, slots=True)
class Tally:
    """Counts over a set of tasks.

    Attributes:
        n: Tasks.
        successes: Tasks solved.
        rate: successes / n.
        lo: Lower end of the 95 % Wilson interval of `rate`.
        hi: Upper end.
        score: Mean score over tasks.
        score_lo: Lower end of the 95 % interval of `score` (Student's, over tasks).
        score_hi: Upper end.
        mean_steps: Mean steps over tasks, solved or not.
        truncated: Share of tasks ended by the step limit.
        well_formed: Share of steps with the required tags.
        admissible: Share of steps whose action was admissible.
        valid: Share of steps that were both.
    """

    n: int
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

    @classmethod
    def of(cls, tasks: Iterable[TaskResult]) -> Tally:
        """Counts `tasks` (at least one)."""
        tasks = list(tasks)
        n = len(tasks)
        successes = sum(task.success for task in tasks)
        # A task can end before its first step (its prompt does not fit); then no step was valid.
        steps = sum(task.steps for task in tasks)
        lo, hi = wilson(successes, n)
        scores = [task.score for task in tasks]
        score_lo, score_hi = mean_interval(scores)
        return cls(
            n=n,
            successes=successes,
            rate=successes / n,
            lo=lo,
            hi=hi,
            score=sum(scores) / n,
            score_lo=score_lo,
            score_hi=score_hi,
            mean_steps=steps / n,
            truncated=sum(task.truncated for task in tasks) / n,
            well_formed=sum(task.well_formed for task in tasks) / max(steps, 1),
            admissible=sum(task.admissible for task in tasks) / max(steps, 1),
            valid=sum(task.valid for task in tasks) / max(steps, 1),
        )


@dataclass(frozen=True)
class EvalResult:
    """One policy on one fixed list of tasks.

    Attributes:
        tasks: One record a task, sorted by task id. Never empty.
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
        check_ids([task.task_id for task in self.tasks])
        object.__setattr__(self, "tasks", tuple(sorted(self.tasks, key=lambda task: task.task_id)))

    @cached_property
    def overall(self) -> Tally:
        """Counts over all tasks."""
        return Tally.of(self.tasks)

    @cached_property
    def per_family(self) -> dict[str, Tally]:
        """Counts per family, families in alphabetical order."""
        families: dict[str, list[TaskResult]] = {}
        for task in self.tasks:
            families.setdefault(task.family, []).append(task)
        return {family: Tally.of(families[family]) for family in sorted(families)}

    @property
    def n(self) -> int:
        """Tasks."""
        return self.overall.n

    @property
    def successes(self) -> int:
        """Tasks solved."""
        return self.overall.successes

    @property
    def success(self) -> float:
        """Share of tasks solved, in [0, 1]."""
        return self.overall.rate

    @property
    def ci(self) -> tuple[float, float]:
        """95 % Wilson interval of `success`."""
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
            **{f"eval/success/{family}": tally.rate for family, tally in self.per_family.items()},
        }

    def to_json(self) -> str:
        """Returns the result as JSON; the counts are for people, `from_json` recounts them."""
        document = {
            "seed": self.seed,
            "temperature": self.temperature,
            "policy_version": self.policy_version,
            "seconds": self.seconds,
            "overall": asdict(self.overall),
            "per_family": {family: asdict(tally) for family, tally in self.per_family.items()},
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

    def table(self, title: str | None = None) -> Table:
        """Returns the result as a table for the terminal, one row a family and one for all."""
        table = Table(title=title)
        table.add_column("family")
        for name in (
            "n",
            "success",
            "95 % interval",
            "score",
            "95 % interval",
            "steps",
            "valid",
            "admissible",
            "cut off",
        ):
            table.add_column(name, justify="right")
        for family, tally in self.per_family.items():
            table.add_row(family, *_cells(tally))
        table.add_section()
        table.add_row("all tasks", *_cells(self.overall), style="bold")
        return table


def _cells(tally: Tally) -> list[str]:
    """Returns a tally as the cells of a table's row."""
    return [
        str(tally.n),
        f"{tally.rate:.3f}",
        f"[{tally.lo:.2f}, {tally.hi:.2f}]",
        f"{tally.score:.3f}",
        f"[{tally.score_lo:.2f}, {tally.score_hi:.2f}]",
        f"{tally.mean_steps:.1f}",
        f"{tally.valid:.1%}",
        f"{tally.admissible:.1%}",
        f"{tally.truncated:.1%}",
    ]


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
