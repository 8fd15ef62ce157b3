"""Sweep files in the format of W&B sweeps, so that one file runs here and there.

    command: ["${env}", "${interpreter}", "${program}", train, alfworld_cpu, train.updates=2,
              "${args_no_hyphens}"]
    method: grid | random | bayes
    metric: {name: eval/success, goal: maximize}
    parameters: {credit.scpo.theta: {values: [0.6, 0.9]}, seed: {values: [0, 1]}}

The experiment and what is the same in every run stand in `command`. `seed` is a dimension of its own: every
point is run with every seed, whatever the method (W&B's own random and bayes draw it as any other parameter).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from configs.text import ConfigError, read_yaml, suggest

EXAMPLE = '["${env}", "${interpreter}", "${program}", train, alfworld_cpu, "${args_no_hyphens}"]'
Distribution = Literal[
    "constant",
    "categorical",
    "categorical_w_probabilities",
    "int_uniform",
    "uniform",
    "q_uniform",
    "log_uniform",
    "log_uniform_values",
    "q_log_uniform",
    "q_log_uniform_values",
    "inv_log_uniform",
    "inv_log_uniform_values",
    "normal",
    "q_normal",
    "log_normal",
    "q_log_normal",
    "beta",
    "q_beta",
]


class Part(BaseModel):
    """Base of what a file holds: immutable, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Parameter(Part):
    """One dimension: a constant, a list of values, or a distribution (W&B's names and defaults)."""

    value: Any = None
    values: list[Any] | None = None
    probabilities: list[float] | None = None
    distribution: Distribution | None = None
    min: int | float | None = None
    max: int | float | None = None
    mu: float = 0.0
    sigma: float = 1.0
    q: float = 1.0
    a: float = 1.0
    b: float = 1.0

    @property
    def kind(self) -> str:
        """The distribution, by W&B's rules where none is named."""
        if self.distribution:
            return self.distribution
        if self.values is not None:
            return "categorical" if self.probabilities is None else "categorical_w_probabilities"
        if self.min is not None or self.max is not None:
            whole = isinstance(self.min, int) and isinstance(self.max, int)
            return "int_uniform" if whole else "uniform"
        return "constant"


class Metric(Part):
    """What is compared: the value last logged under that name."""

    name: str
    goal: Literal["minimize", "maximize"] = "minimize"
    target: float | None = None


class EarlyTerminate(Part):
    """W&B's hyperband: at growing numbers of logged values, runs outside the best 1/eta are stopped."""

    type: Literal["hyperband"]
    min_iter: int | None = Field(None, ge=1)
    max_iter: int | None = Field(None, ge=1)
    s: int = Field(1, ge=1)
    eta: int = Field(3, ge=2)
    strict: bool = False

    @property
    def first(self) -> int:
        """Logged values before the first decision."""
        return self.min_iter or max(1, self.max_iter // self.eta**self.s)


class SweepFile(Part):
    """The whole file, as W&B takes it."""

    program: str = "run.py"
    command: list[str]
    method: Literal["grid", "random", "bayes"]
    metric: Metric
    parameters: dict[str, Parameter]
    early_terminate: EarlyTerminate | None = None
    run_cap: int | None = Field(None, ge=1)
    name: str | None = None
    description: str | None = None
    project: str | None = None
    entity: str | None = None

    def experiment(self) -> tuple[str, list[str]]:
        """Returns the experiment and the overrides that `command` gives every run.

        Raises:
            ConfigError: `command` does not train.
        """
        words = [str(word) for word in self.command]
        after = words[words.index("train") + 1 :] if "train" in words else []
        if not after or "=" in after[0] or after[0].startswith(("$", "-")):
            raise ConfigError(f"`command` must say `train` and an experiment, such as {EXAMPLE}, got {words}")
        return after[0], [word for word in after[1:] if "=" in word]


def read_sweep(path: Path) -> tuple[SweepFile, dict[str, Any]]:
    """Reads a sweep file.

    Returns:
        The sweep, nested parameters flattened to dotted names; and the file as it is, for W&B.

    Raises:
        ConfigError: One line for each thing that does not fit.
    """
    raw = read_yaml(path)
    if not isinstance(raw, Mapping):
        raise ConfigError(f"{path} must hold `key: value` pairs (method, metric, parameters, command)")
    tree = dict(raw)
    if isinstance(tree.get("parameters"), Mapping):
        tree["parameters"] = _flat(tree["parameters"])
    sweep = validate(SweepFile, tree, path)
    _check(sweep, path)
    return sweep, dict(raw)


def validate(model: type[BaseModel], tree: Mapping[str, Any], path: Path) -> Any:
    """Returns `model` made from `tree`; ConfigError with one line a problem, the nearest known key named."""
    try:
        return model.model_validate(tree)
    except ValidationError as error:
        lines = [_explain(item, model, path) for item in error.errors()]
    raise ConfigError("\n".join(lines))


def _explain(item: Mapping[str, Any], model: type[BaseModel], path: Path) -> str:
    where = ".".join(map(str, item["loc"]))
    if item["type"] == "extra_forbidden":
        known = _model_at(model, item["loc"][:-1]).model_fields
        return f"unknown key `{where}` ({path}){suggest(str(item['loc'][-1]), known)}"
    message = item["msg"].removeprefix("Value error, ").replace("Input should", "must")
    if item["type"] == "missing":
        return f"`{where}` is missing in {path}"
    return f"`{where}` {message}, got {item['input']!r} ({path})"


def _model_at(model: type[BaseModel], loc: Sequence[str | int]) -> type[BaseModel]:
    """The model of the section that `loc` leads to; names of dimensions lead no deeper."""
    for part in loc:
        if part in model.model_fields:
            inner = model.model_fields[part].annotation
            while not isinstance(inner, type) or get_origin(inner):
                inner = next(a for a in reversed(get_args(inner)) if a is not type(None))
            model = inner
    return model


def _flat(parameters: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, below in parameters.items():
        if isinstance(below, Mapping) and isinstance(below.get("parameters"), Mapping):
            flat |= _flat(below["parameters"], f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = below
    return flat


def _check(sweep: SweepFile, path: Path) -> None:
    """What single fields cannot tell."""
    if not sweep.parameters:
        raise ConfigError(f"{path}: `parameters` is empty, so there is nothing to sweep over")
    for name, parameter in sweep.parameters.items():
        where = f"{path}: `parameters.{name}`"
        kind = parameter.kind
        if parameter.values is not None:
            _check_values(parameter.values, parameter.probabilities, where)
        elif kind.startswith("categorical"):
            raise ConfigError(f"{where} is {kind} and has no `values`")
        elif "uniform" in kind:
            _check_range(parameter, where)
        elif kind == "constant" and "value" not in parameter.model_fields_set:
            raise ConfigError(f"{where} says neither `value`, nor `values`, nor `min` and `max`")
        if sweep.method == "grid" and kind not in ("constant", "categorical", "int_uniform", "q_uniform"):
            raise ConfigError(f"{where} is {kind}; a grid needs `values` (or method random or bayes)")
    seed = sweep.parameters.get("seed")
    if seed is not None and seed.kind not in ("constant", "categorical"):
        raise ConfigError(f"{path}: `parameters.seed` must list its seeds: {{values: [0, 1, 2]}}")
    stop = sweep.early_terminate
    if stop and stop.min_iter is None and stop.max_iter is None:
        raise ConfigError(f"{path}: `early_terminate` needs min_iter, or max_iter and s")


def _check_values(values: Sequence[Any], probabilities: Sequence[float] | None, where: str) -> None:
    if not values:
        raise ConfigError(f"{where}.values is empty: an empty grid has no runs")
    twice = [value for i, value in enumerate(values) if value in values[:i]]
    if twice:
        raise ConfigError(f"{where}.values lists {twice[0]!r} twice")
    if probabilities is not None and (
        len(probabilities) != len(values) or min(probabilities) < 0 or abs(sum(probabilities) - 1) > 1e-6
    ):
        raise ConfigError(f"{where}.probabilities must be one for each value, ≥ 0, with sum 1")


def _check_range(parameter: Parameter, where: str) -> None:
    if parameter.min is None or parameter.max is None:
        raise ConfigError(f"{where} needs both `min` and `max`")
    if not parameter.min < parameter.max:
        raise ConfigError(f"{where}: min must be below max, got {parameter.min} and {parameter.max}")
    if parameter.kind.endswith("_values") and parameter.min <= 0:
        raise ConfigError(f"{where}: a logarithmic range must be above 0, got min {parameter.min}")
