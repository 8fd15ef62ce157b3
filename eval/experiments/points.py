"""The points of a sweep: enumerated, drawn at random, or proposed from what is known so far."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.special import ndtri
from scipy.stats import beta

from configs.seeds import derive
from configs.text import ConfigError, read_yaml
from eval.experiments.spec import Parameter, SweepFile

Point = dict[str, Any]
"""Option → value, seeds apart."""
_TRIES = 200  # draws for each distinct point wanted, before a random sweep is said to have no more


def dimensions(sweep: SweepFile) -> dict[str, Parameter]:
    """Returns the parameters without `seed`."""
    return {name: parameter for name, parameter in sweep.parameters.items() if name != "seed"}


def seeds(sweep: SweepFile) -> list[int] | None:
    """Returns the seeds every point is run with, None if the file names none (the experiment's own)."""
    seed = sweep.parameters.get("seed")
    return None if seed is None else [int(value) for value in listed(seed)]


def listed(parameter: Parameter) -> list[Any]:
    """Returns the values of a parameter that a grid enumerates."""
    if parameter.kind == "constant":
        return [parameter.value]
    if parameter.values is not None:
        return list(parameter.values)
    step = 1 if parameter.kind == "int_uniform" else parameter.q
    count = math.floor((parameter.max - parameter.min) / step + 1e-9) + 1
    return [parameter.min + i * step for i in range(count)]


def grid(sweep: SweepFile) -> list[Point]:
    """Returns every combination; the last parameter changes fastest."""
    found = dimensions(sweep)
    combinations = itertools.product(*(listed(parameter) for parameter in found.values()))
    return [dict(zip(found, values, strict=True)) for values in combinations]


def random(sweep: SweepFile, count: int, seed: int) -> list[Point]:
    """Returns `count` distinct points; a value depends on seed, draw and name alone.

    Raises:
        ConfigError: There are not that many.
    """
    found: list[Point] = []
    for i in range(_TRIES * count):
        point = {
            name: draw(parameter, _uniform(seed, i, name)) for name, parameter in dimensions(sweep).items()
        }
        if point not in found:
            found.append(point)
        if len(found) == count:
            return found
    raise ConfigError(
        f"the sweep has only {len(found)} distinct points, {count} were asked for: ask for fewer, or use grid"
    )


def draw(parameter: Parameter, u: float) -> Any:
    """Returns the parameter's value at the quantile `u` in (0, 1); W&B's definitions.

    Exponents of `log_uniform` and `inv_log_uniform` are natural ones, as is `mu` of `log_normal`. `q_…`
    rounds to multiples of q.
    """
    kind, low, high = parameter.kind, parameter.min, parameter.max
    if kind == "constant":
        return parameter.value
    if kind.startswith("categorical"):
        shares = parameter.probabilities or [1 / len(parameter.values)] * len(parameter.values)
        index = int(np.searchsorted(np.cumsum(shares), u, side="right"))
        return parameter.values[min(index, len(shares) - 1)]
    if kind == "int_uniform":
        return int(low + math.floor(u * (high - low + 1)))
    value = _quantile(kind.removeprefix("q_"), parameter, u)
    return float(round(value / parameter.q) * parameter.q if kind.startswith("q_") else value)


def _quantile(kind: str, parameter: Parameter, u: float) -> float:
    low, high = parameter.min, parameter.max
    normal = parameter.mu + parameter.sigma * float(ndtri(u))
    match kind:
        case "uniform":
            return low + u * (high - low)
        case "log_uniform":
            return math.exp(low + u * (high - low))
        case "log_uniform_values":
            return math.exp(math.log(low) + u * (math.log(high) - math.log(low)))
        case "inv_log_uniform":  # log(1/x) is uniform between min and max
            return math.exp(-(low + u * (high - low)))
        case "inv_log_uniform_values":  # max·min/x is log-uniform; so is x, in falling order
            return high * math.exp(-u * (math.log(high) - math.log(low)))
        case "normal":
            return normal
        case "log_normal":
            return math.exp(normal)
        case "beta":
            return float(beta.ppf(u, parameter.a, parameter.b))
    raise ConfigError(f"no distribution {kind!r}")


def _uniform(seed: int, draw_number: int, name: str) -> float:
    return (derive(seed, "sweep", draw_number, name) + 0.5) / 2**63


def corners(sweep: SweepFile) -> list[Point]:
    """Returns points that together take every listed value and both ends of every range."""
    ends = {name: _ends(parameter) for name, parameter in dimensions(sweep).items()}
    longest = max((len(values) for values in ends.values()), default=0)
    return [{name: values[i % len(values)] for name, values in ends.items()} for i in range(longest)]


def _ends(parameter: Parameter) -> Sequence[Any]:
    if parameter.kind == "constant" or parameter.values is not None:
        return listed(parameter)
    edge = 1e-9 if "uniform" in parameter.kind else 1e-3  # a normal has no ends
    return [draw(parameter, edge), draw(parameter, 1 - edge)]


def overrides(point: Mapping[str, Any]) -> list[str]:
    """Returns a point as the command line takes it, exact for numbers."""
    return [f"{name}={typed(value)}" for name, value in point.items()]


def typed(value: Any) -> str:
    """Returns a value as YAML 1.2 reads it back."""
    return value if isinstance(value, str) and read_yaml(value) == value else json.dumps(value)
