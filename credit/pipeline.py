"""A method is an ordered list of stages, run over the whole unpadded table before anything is batched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from configs.old_keys import stages_renamed
from configs.params import did_you_mean
from credit.base import AuxLoss, Estimator, Filter, Reweighter, Shaper, Stage, Steer
from credit.parts.effect import effect_doc, effects
from credit.parts.stage_runs import Act, act
from credit.parts.token_rows import per_row
from credit.registry import all_stages, build_stage
from credit.signals import Context, PerToken, Signals
from credit.table import StepTable

METRICS: dict[str, str] = {
    f"credit/{name}/{key}": doc
    for name, stage in all_stages().items()
    for key, doc in {**stage.metrics_doc, **effect_doc(stage)}.items()
} | {
    "credit/advantage_mean": "mean advantage over real rows that vote",
    "credit/advantage_std": "population standard deviation of the advantage over these rows",
    "credit/advantage_abs_max": "largest |advantage|",
    "credit/advantage_zero_fraction": "share of these rows whose advantage is exactly 0 (no gradient)",
    "credit/abstaining": "share of real rows that do not vote, as none of their tokens is under the loss "
    "(train.masked_rows=abstain); only where there are some",
}
"""Every metric a pipeline can report, with its meaning."""

ACTIVITY: dict[str, tuple[str, str]] = {
    name: (f"credit/{name}/{stage.activity}", stage.metrics_doc[stage.activity])
    for name, stage in all_stages().items()
    if stage.activity
}
"""Stage → the metric that is 0 where it changes nothing, with its meaning; only stages that have one."""

COLUMNS: dict[str, str] = {
    f"{name}.{key}": doc for name, stage in all_stages().items() for key, doc in stage.columns_doc.items()
}
"""Every per-row column a pipeline can report, with its meaning."""


@dataclass(frozen=True)
class CreditResult:
    """What a method says about each row, in the row order of the table it was given.

    Attributes:
        advantage: float [N]; 0 in padding rows and in those that do not vote. When a stage works per token:
            its mean over the row's tokens.
        token_advantage: float [sum(length)], laid out as the table's token columns; None unless one did.
        returns: float [N] as the estimator saw them; 0 in padding rows, NaN where no stage computed any.
        columns: "stage.column" to [N], see `COLUMNS`; 0 in padding rows.
        metrics: see `METRICS`.
        aux_weight: float [sum(length)], weight of each token in the auxiliary losses (see `AuxLoss`); None
            if the method has none.
        state: stage name to its state, JSON values; hand it to the next `Pipeline.run`.
    """

    advantage: np.ndarray
    token_advantage: np.ndarray | None
    returns: np.ndarray
    columns: dict[str, np.ndarray]
    metrics: dict[str, float]
    aux_weight: np.ndarray | None = None
    state: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Pipeline:
    """Stages in order: steering, filters, shapers, then one estimator, then reweighters and auxiliary losses.

    Attributes:
        stages: at least the estimator.
        name: of the method, for messages.
    """

    stages: Sequence[Stage]
    name: str = ""

    def __post_init__(self) -> None:
        kinds = [_kind(stage) for stage in self.stages]
        if kinds != sorted(kinds) or kinds.count(_ESTIMATOR) != 1 or kinds.count(_STEER) > 1:
            order = " → ".join(stage.name() for stage in self.stages) or "nothing"
            raise ValueError(
                f"credit method {self.name!r}: got {order}; expected any filters and shapers, then "
                "exactly one estimator (such as grpo or gigpo), then any reweighters and auxiliary losses, "
                "and before all of them at most one steering stage"
            )
        estimator = self.stages[kinds.index(_ESTIMATOR)]
        for stage in self.stages:
            if isinstance(stage, Shaper) and stage.returns_only and not estimator.compares_returns:
                raise ValueError(
                    f"credit method {self.name!r}: {stage.name()} changes returns, which {estimator.name()} "
                    "does not look at; use an estimator that compares returns, such as gigpo"
                )

    @classmethod
    def from_config(cls, config: Mapping[str, Mapping[str, Any] | None], name: str = "") -> Pipeline:
        """A pipeline from an ordered mapping: stage name to its parameters (None or {} for the defaults).

        A stage may have its old name, see `configs.old_keys`.

        Raises:
            ValueError: unknown stage or parameter (with the nearest known one), value out of range, wrong
                order.
        """
        stages = stages_renamed(config)
        return cls(tuple(build_stage(stage, parameters or {}) for stage, parameters in stages.items()), name)

    @classmethod
    def from_yaml(cls, path: str | Path) -> Pipeline:
        """A pipeline from a method file: `name:` and `stages:` (ordered mapping)."""
        config = load_method(path)
        return cls.from_config(config["stages"], config["name"])

    @property
    def requires(self) -> frozenset[str]:
        """Names of the services that the stages need."""
        return frozenset().union(*(stage.requires for stage in self.stages))

    @property
    def token_columns(self) -> frozenset[str]:
        """Names of the token columns that the stages read."""
        return frozenset().union(*(stage.token_columns for stage in self.stages))

    @property
    def filters(self) -> tuple[Filter, ...]:
        """The stages that choose groups, for whoever makes the rollouts."""
        return tuple(stage for stage in self.stages if isinstance(stage, Filter))

    @property
    def steers(self) -> tuple[Steer, ...]:
        """The stages with a hand in the rollout."""
        return tuple(stage for stage in self.stages if isinstance(stage, Steer))

    def check_services(self, services: Mapping[str, Any]) -> None:
        """Raise a ValueError naming a service that a stage needs and that is missing; call at start-up."""
        for stage in self.stages:
            for service in sorted(stage.requires - set(services)):
                raise ValueError(
                    f"credit.{stage.name()} needs the service {service!r}, got "
                    f"{sorted(services) or 'none'}; pass services={{{service!r}: …}} to the pipeline"
                )

    def run(
        self,
        table: StepTable,
        services: Mapping[str, Any] | None = None,
        *,
        seed: int = 0,
        step: int = 0,
        state: Mapping[str, Any] | None = None,
    ) -> CreditResult:
        """Advantages of every row.

        Args:
            table: rows in any order, padding allowed.
            services: e.g. {"pair_scorer": scorer}, see `requires`.
            seed: seed of every random draw (only options named `random` draw).
            step: number of the update.
            state: `CreditResult.state` of the update before; None starts afresh.

        Raises:
            ValueError: a service or a token column that a stage needs is missing.
        """
        context = Context(services or {}, seed, step)
        before, after = state or {}, {}
        self.check_services(context.services)
        self._check_tokens(table)
        rows_of, rows = table.canonical()
        signals = Signals(rows_of.return_to_go, rows_of.outcome, np.zeros(len(rows_of)))
        metrics: dict[str, float] = {}
        columns: dict[str, np.ndarray] = {}
        acts: list[Act] = []
        aux_weight = None
        for stage in self.stages:
            if isinstance(stage, (Steer, Filter)):
                continue  # they had their say before the table was made
            own = replace(context, state=before.get(stage.name()))
            handed = signals
            signals, output = act(stage, rows_of, handed, own)
            acts.append(Act(stage, handed, own, output))
            if isinstance(stage, AuxLoss):
                aux_weight = output.weight if aux_weight is None else aux_weight + output.weight
            elif isinstance(stage, Shaper) and output.state is not None:
                after[stage.name()] = output.state
            metrics |= {f"credit/{stage.name()}/{key}": value for key, value in output.metrics.items()}
            columns |= {
                f"{stage.name()}.{key}": _scatter(value, rows, len(table))
                for key, value in output.columns.items()
            }
        advantage = per_row(rows_of, signals.advantage)
        tokens, total = table.token_index(rows), int(table.length.sum())
        token_advantage = None
        if isinstance(signals.advantage, PerToken):
            token_advantage = _scatter(signals.advantage.values, tokens, total)
        metrics |= effects(acts, rows_of, signals.advantage)
        metrics |= _advantage_metrics(advantage, rows_of.votes)
        return CreditResult(
            _scatter(advantage, rows, len(table)),
            token_advantage,
            _scatter(signals.returns, rows, len(table)),
            columns,
            metrics,
            None if aux_weight is None else _scatter(aux_weight, tokens, total),
            after,
        )

    def _check_tokens(self, table: StepTable) -> None:
        for stage in self.stages:
            for column in sorted(stage.token_columns - set(table.tokens)):
                raise ValueError(
                    f"credit.{stage.name()} reads the token column {column!r}, got "
                    f"{sorted(table.tokens) or 'none'}; fill StepTable.tokens (rl.probes.probes computes it)"
                )


_METHOD_KEYS = ("name", "stages", "published")


def load_method(path: str | Path) -> dict[str, Any]:
    """The mapping {"name": str, "stages": {stage: parameters}} of a method file, keys checked.

    A third key, `published`, is for configurations (`configs.methods`) and not looked at.
    """
    config = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    if not isinstance(config, dict) or not isinstance(config.get("stages"), dict):
        raise ValueError(f"{path}: expected `name:` and `stages:` (a mapping of stage to parameters)")
    for key in config:
        if key not in _METHOD_KEYS:
            raise ValueError(f"{path}: no key {key!r}{did_you_mean(str(key), _METHOD_KEYS)}")
    return {"name": str(config.get("name") or Path(path).stem), "stages": config["stages"]}


_KINDS = (Steer, Filter, Shaper, Estimator, Reweighter, AuxLoss)
_STEER, _ESTIMATOR = _KINDS.index(Steer), _KINDS.index(Estimator)


def _kind(stage: Stage) -> int:
    for rank, kind in enumerate(_KINDS):
        if isinstance(stage, kind):
            return rank
    raise ValueError(
        f"credit.{stage.name()}: {type(stage).__mro__[1].__name__} is no kind of stage that a pipeline "
        f"can run; derive from one of {', '.join(kind.__name__ for kind in _KINDS)}"
    )


def _scatter(values: np.ndarray, rows: np.ndarray, n: int) -> np.ndarray:
    result = np.zeros(n, dtype=values.dtype)
    result[rows] = values
    return result


def _advantage_metrics(advantage: np.ndarray, votes: np.ndarray) -> dict[str, float]:
    abstaining = {} if votes.all() else {"credit/abstaining": float(np.mean(~votes))}
    advantage = advantage[votes]
    if not len(advantage):
        return abstaining
    return abstaining | {
        "credit/advantage_mean": float(advantage.mean()),
        "credit/advantage_std": float(advantage.std()),
        "credit/advantage_abs_max": float(np.abs(advantage).max()),
        "credit/advantage_zero_fraction": float(np.mean(advantage == 0)),
    }
