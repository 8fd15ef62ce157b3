"""The best checkpoint of a run, and by how much choosing it flatters its result."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from configs.seeds import derive
from eval.result import EvalError, EvalResult
from eval.runfolder import RunFolder

_FILE = "best.json"  # as rl.checkpoint writes it, into every checkpoint
_DRAWS = 1000


@dataclass(frozen=True, slots=True)
class Choice:
    """Which checkpoint is the best.

    Attributes:
        metric: What it was chosen by.
        value: The metric there.
        update: Updates it was made after.
        since: Evaluations from this update on were chosen among.
    """

    metric: str
    value: float
    update: int
    since: int


@dataclass(frozen=True, slots=True)
class Best:
    """The best checkpoint beside the last evaluation, on the tasks it was chosen on.

    Attributes:
        choice: Which it is.
        among: Updates whose evaluations it was chosen among.
        chosen: Its evaluation.
        last_update: Update of the last evaluation.
        last: That evaluation.
        flattery: By how much `choice.value` is expected to exceed what this checkpoint achieves on other
            tasks of the same kind, see `flattery`; None if it cannot be estimated.
    """

    choice: Choice
    among: tuple[int, ...]
    chosen: EvalResult
    last_update: int
    last: EvalResult
    flattery: float | None


def checkpoints(run_dir: Path) -> dict[int, Path]:
    """Returns update → folder of a run's checkpoints, in order."""
    found = [path for path in (run_dir / "checkpoints").glob("[0-9]*") if (path / "config.json").is_file()]
    return dict(sorted((int(path.name), path) for path in found))


def choice(run_dir: Path) -> Choice | None:
    """Returns the best checkpoint so far, None if the run keeps none; the newest checkpoint knows."""
    newest = next(reversed(checkpoints(run_dir).values()), None)
    if newest is None or not (newest / _FILE).is_file():
        return None
    try:
        return Choice(**json.loads((newest / _FILE).read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise EvalError(f"{newest / _FILE} does not say which checkpoint is the best ({error})") from error


def best_of(run: RunFolder) -> Best | None:
    """Returns a run's best checkpoint with its evaluations, None if it keeps none."""
    chosen = choice(run.path)
    if chosen is None:
        return None
    # Not the files of evaluations alone: a resumed run may not have made those of later updates again.
    made = [update for update in run.series(chosen.metric)[0] if update >= chosen.since]
    among = tuple(update for update in made if update in run.evals)
    if chosen.update not in among:
        return None
    evaluations = [run.evals[update] for update in among]
    alike = all(one.task_ids == evaluations[0].task_ids for one in evaluations)
    values = np.array([list(one.per_task(chosen.metric).values()) for one in evaluations]) if alike else None
    return Best(
        choice=chosen,
        among=among,
        chosen=run.evals[chosen.update],
        last_update=among[-1],
        last=evaluations[-1],
        flattery=None if values is None else flattery(values, run.get("seed") or 0),
    )


def flattery(values: np.ndarray, seed: int) -> float | None:
    """Returns by how much the best of several evaluations is expected to exceed its policy's true value.

    A bootstrap over tasks. Of n tasks n are drawn with replacement; the evaluation that is best on those
    drawn is looked up on those not drawn, which had no say in the choice. The mean over all draws estimates
    what a choice made this way is worth on other tasks. Returned is what the best has on all, less that:

        max_m mean_i x[m, i] − E_draw[ mean_{i not drawn} x[m*, i] ],  m* = argmax_m mean_{i drawn} x[m, i]

    Of equally good policies, where the best is nothing but the luckiest, this is without bias: the expected
    maximum less the mean. Where policies differ, a choice from a resample, which holds 63 % of the tasks,
    finds the better one more rarely than a choice from all of them, so the estimate errs on the side of too
    much. (The difference between drawn and not drawn tasks within a draw would be √2 times too large: a draw
    that is lucky in what it holds is unlucky in what it leaves.)

    Args:
        values: [m evaluations, n tasks], in the order in which the earlier of two equal ones is chosen.
        seed: Of the draws.

    Returns:
        The difference, in units of `values`; it can come out slightly below 0. None with a single task.
    """
    m, n = values.shape
    if n < 2:
        return None
    rng = np.random.default_rng(derive(seed, "flattery"))
    times = rng.multinomial(n, np.full(n, 1 / n), size=_DRAWS)  # [draws, n]: how often each task was drawn
    chosen = np.argmax(times @ values.T, axis=1)  # [draws]
    left = times == 0
    left, chosen = left[left.any(axis=1)], chosen[left.any(axis=1)]
    outside = (left * values[chosen]).sum(axis=1) / left.sum(axis=1)
    return float(values.mean(axis=1).max() - outside.mean())
