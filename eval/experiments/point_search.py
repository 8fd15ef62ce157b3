"""What optuna decides: where to look next (bayes), and which runs are not worth finishing (hyperband)."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState, create_trial

from configs.seeds import derive
from configs.text import ConfigError
from eval.experiments.points import Point, dimensions
from eval.experiments.spec import EarlyTerminate, Parameter, SweepFile

optuna.logging.set_verbosity(optuna.logging.WARNING)
warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)


class Bayes:
    """Proposes points by the tree-structured Parzen estimator, and remembers them in `points.jsonl`.

    A proposal depends on the seed, its number and the results so far, not on the process that asks: a sweep
    killed and continued proposes the same as one never interrupted (one run at a time; with several, the
    order in which they finish matters, as in any asynchronous search).
    """

    def __init__(self, sweep: SweepFile, path: Path, seed: int) -> None:
        """Reads what was proposed before.

        Raises:
            ConfigError: A distribution that this search cannot use.
        """
        self._space = {name: _distribution(name, p) for name, p in dimensions(sweep).items()}
        self._constants = {n: p.value for n, p in dimensions(sweep).items() if p.kind == "constant"}
        self._direction, self._path, self._seed = sweep.metric.goal, path, seed
        self.points: list[Point] = _read_points(path)

    def propose(self, values: Mapping[int, float | None]) -> Point:
        """Returns the next point, recorded.

        Args:
            values: Number of a point → its result; None while it runs, not a number if it failed.
        """
        number = len(self.points)
        sampler = optuna.samplers.TPESampler(seed=derive(self._seed, "bayes", number) % 2**32)
        study = optuna.create_study(direction=self._direction, sampler=sampler)
        space = {name: one for name, one in self._space.items() if one is not None}
        for i, point in enumerate(self.points):
            value = values.get(i)
            state = TrialState.RUNNING if value is None else TrialState.COMPLETE
            if value is not None and math.isnan(value):
                state, value = TrialState.FAIL, None
            params = {name: _inside(point[name], space[name]) for name in space}
            study.add_trial(create_trial(params=params, distributions=space, value=value, state=state))
        found = study.ask(space).params
        point = {name: self._constants.get(name, found.get(name)) for name in self._space}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(point) + "\n")
        self.points.append(point)
        return point


def _read_points(path: Path) -> list[Point]:
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8")
    whole = text[: text.rfind("\n") + 1]  # half a line: a proposal no run was started for
    if whole != text:
        path.write_text(whole, encoding="utf-8")
    return [json.loads(line) for line in whole.splitlines()]


def _distribution(name: str, parameter: Parameter) -> BaseDistribution | None:
    low, high = parameter.min, parameter.max
    match parameter.kind:
        case "constant":
            return None
        case "categorical":
            return CategoricalDistribution(parameter.values)
        case "int_uniform":
            return IntDistribution(low, high)
        case "uniform":
            return FloatDistribution(low, high)
        case "q_uniform":
            return FloatDistribution(low, high, step=parameter.q)
        case "log_uniform_values" | "inv_log_uniform_values":
            return FloatDistribution(low, high, log=True)
        case "log_uniform":
            return FloatDistribution(math.exp(low), math.exp(high), log=True)
        case "inv_log_uniform":
            return FloatDistribution(math.exp(-high), math.exp(-low), log=True)
    raise ConfigError(
        f"`parameters.{name}` is {parameter.kind}, which method bayes cannot search: give it a range "
        "(uniform, log_uniform_values, int_uniform, q_uniform) or values, or use method random"
    )


def _inside(value: Any, distribution: BaseDistribution) -> Any:
    """Takes 1.0 for 1 where whole numbers went through JSON."""
    return int(value) if isinstance(distribution, IntDistribution) else value


class Race:
    """Asynchronous successive halving among the runs of one seed: W&B's `hyperband`, which has one bracket.

    At `first`, `first`·eta, `first`·eta², … logged values a run has to be among the best 1/eta of those that
    came so far, else it is stopped (Li et al. 2018, arXiv 1810.05934).
    """

    def __init__(self, stop: EarlyTerminate, goal: str) -> None:
        """Starts without runners."""
        pruner = optuna.pruners.SuccessiveHalvingPruner(min_resource=stop.first, reduction_factor=stop.eta)
        self._study = optuna.create_study(direction=goal, pruner=pruner)
        self._trials: dict[str, optuna.Trial] = {}
        self._seen: dict[str, int] = {}

    def lost(self, run: str, values: Sequence[float]) -> bool:
        """Whether a run should stop, given all the values it has logged so far, in order."""
        trial = (
            self._trials.setdefault(run, self._study.ask()) if run not in self._trials else self._trials[run]
        )
        for i in range(self._seen.get(run, 0), len(values)):
            trial.report(values[i], step=i + 1)
            self._seen[run] = i + 1
            if trial.should_prune():
                return True
        return False
