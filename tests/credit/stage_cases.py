"""Every stage with every choice of its options, in the shortest method around it, and tables to run it on."""

import zlib
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st

from credit.base import AuxLoss, Estimator, Filter, Reweighter, Steer
from credit.parts.continuations import Segment
from credit.pipeline import Pipeline
from credit.registry import all_stages
from credit.scorer import make_scorer
from credit.table import StepTable


class Played:
    """A `continuations` service that played nothing: every segment gains the same."""

    def segments(self, table, candidates, samples):
        return [Segment(c.trajectory, c.start, c.end, 0.5, 0.25, 0.75, samples) for c in candidates]


SERVICES = {
    "pair_scorer": make_scorer("lexical"),
    "continuations": Played(),
    "judge": lambda table, success, failure: (0, 1),
}
TOKEN_COLUMNS = ("entropy", "logp_sampled", "logp_ref", "logp_peer", "logp_hindsight")
FAST = settings(max_examples=12, deadline=None, derandomize=True)


def around(name, options):
    """The shortest method with this stage that GiGPO makes advantages for."""
    kind, stage, base = all_stages()[name], {name: options}, {"returns": {}, "gigpo": {}}
    if issubclass(kind, Estimator):
        return {"returns": {}} | stage
    if issubclass(kind, (Reweighter, AuxLoss)):
        return base | stage
    if issubclass(kind, (Steer, Filter)):
        return stage | base
    return {"returns": {}, name: options, "gigpo": {}}


def configurations():
    """A method around each stage: its defaults, then each choice of each option."""
    for name, stage in all_stages().items():
        variants = [{}] + [
            {f.name: c} for f in fields(stage) for c in f.metadata["choices"] if c != f.default
        ]
        for variant in variants:
            label = name + "".join(f" {key}={value}" for key, value in variant.items())
            yield pytest.param(Pipeline.from_config(around(name, variant), label), id=label)


every_method = pytest.mark.parametrize("method", list(configurations()))


def at_their_bounds():
    """A method around each stage with each number of its options at the least and at the most it may be."""
    for name, stage in all_stages().items():
        for option in fields(stage):
            for bound in (option.metadata["low"], option.metadata["high"]):
                if bound is None or bound == option.default:
                    continue
                value = type(option.default)(bound)
                label = f"{name} {option.name}={value}"
                try:
                    yield pytest.param(
                        Pipeline.from_config(around(name, {option.name: value}), label), id=label
                    )
                except ValueError as refused:  # lam = 1 divides by 0, and says so
                    assert f"credit.{name}.{option.name}" in str(refused)


steps = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from(["go", "take", "look"]), st.booleans()),
    min_size=1,
    max_size=4,
)
groups = st.lists(st.lists(st.tuples(st.booleans(), steps), min_size=1, max_size=4), min_size=0, max_size=3)


def columns_of(groups, scale=10.0):
    """Columns of groups of (success, [(place, action, valid), …]); anchors differ from observations."""
    rows, trajectory = [], 0
    for group, trajectories in enumerate(groups):
        for success, path in trajectories:
            for t, (place, action, valid) in enumerate(path):
                last = t == len(path) - 1
                rows.append(
                    (
                        group,
                        trajectory,
                        t,
                        scale * success * last,
                        scale * success,
                        success,
                        place,
                        action,
                        valid,
                    )
                )
            trajectory += 1
    names = ("group", "trajectory", "t", "reward", "outcome", "success", "anchor", "action", "valid")
    table = (
        dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
        if rows
        else {name: [] for name in names}
    )
    table["observation"] = [f"You are at {place}. Nothing happens." for place in table["anchor"]]
    return table


def with_tokens(columns):
    """The columns with tokens: two or three a row, their values a function of the row's place and step.

    So they follow their row into any order. Some teacher values are missing (NaN).
    """
    length = [2 + t % 2 for t in columns["t"]]
    tokens = {name: [] for name in TOKEN_COLUMNS}
    for place, t, action, n in zip(columns["anchor"], columns["t"], columns["action"], length, strict=True):
        code = zlib.crc32(f"{place}{t}{action}".encode())
        for number, (name, values) in enumerate(tokens.items()):
            value = (1 + (code >> number) % 97) / 50
            missing = code % 5 == 0 and name in ("logp_peer", "logp_hindsight")
            values += [np.nan if missing else value if name == "entropy" else -value] * n
    return columns | {"length": length, "tokens": tokens}


def run(method, columns, seed=3):
    return method.run(StepTable(**with_tokens(columns)), SERVICES, seed=seed, step=1)


def reordered(columns, order):
    return {name: [values[i] for i in order] for name, values in columns.items()}
