"""Laws that every stage of the folder obeys, with every choice of every option."""

import random
import zlib
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from credit.base import AuxLoss, Estimator, Filter, Reweighter, Shaper, Steer
from credit.pipeline import COLUMNS, METRICS, Pipeline
from credit.registry import all_stages
from credit.table import StepTable
from tests.credit.laws import FAST, SERVICES, columns_of, groups

TOKEN_COLUMNS = ("entropy", "logp_sampled", "logp_ref", "logp_peer", "logp_hindsight")


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


@every_method
@FAST
@given(groups=groups, shuffle=st.randoms(use_true_random=False))
def test_row_order_changes_nothing(method, groups, shuffle):
    columns = columns_of(groups)
    order = list(range(len(columns["t"])))
    shuffle.shuffle(order)
    straight, mixed = run(method, columns), run(method, reordered(columns, order))
    assert mixed.advantage.tolist() == straight.advantage[order].tolist()
    assert mixed.returns.tolist() == straight.returns[order].tolist()


@every_method
@FAST
@given(groups=groups, shuffle=st.randoms(use_true_random=False))
def test_names_of_groups_and_trajectories_change_nothing(method, groups, shuffle):
    names_change_nothing(method, groups, shuffle)


@pytest.mark.parametrize("method", list(at_their_bounds()))
@settings(max_examples=5, deadline=None, derandomize=True)
@given(groups=groups, shuffle=st.randoms(use_true_random=False))
def test_names_change_nothing_with_an_option_at_its_bound(method, groups, shuffle):
    """No prior, no eps, everything similar: where a sum of rounding errors may stand in for an exact 0."""
    names_change_nothing(method, groups, shuffle)


def names_change_nothing(method, groups, shuffle):
    columns = columns_of(groups)
    renamed = dict(columns)
    for name in ("group", "trajectory"):
        ids = sorted(set(columns[name]))
        new = shuffle.sample(range(-50, 50), len(ids))
        renamed[name] = [dict(zip(ids, new, strict=True))[i] for i in columns[name]]
    straight, other = run(method, columns).advantage, run(method, renamed).advantage
    assert np.isfinite(straight).all()
    np.testing.assert_allclose(other, straight, rtol=1e-8, atol=1e-8)


@every_method
@FAST
@given(groups=groups, where=st.lists(st.integers(0, 30), min_size=1, max_size=5))
def test_padding_rows_change_nothing_and_get_zero(method, groups, where):
    columns = columns_of(groups) | {"padding": []}
    columns["padding"] = [False] * len(columns["t"])
    filler = {
        "group": 0,
        "trajectory": 0,
        "t": 7,
        "reward": 99.0,
        "outcome": 99.0,
        "success": True,
        "anchor": "a",
        "action": "go",
        "valid": False,
        "observation": "",
        "padding": True,
    }
    padded = {name: list(values) for name, values in columns.items()}
    for position in where:
        for name, values in padded.items():
            values.insert(position, filler[name])
    plain, got = run(method, columns), run(method, padded)
    real = ~np.array(padded["padding"], dtype=bool)
    assert got.advantage[real].tolist() == plain.advantage.tolist()
    assert not got.advantage[~real].any()
    assert got.metrics == plain.metrics


@every_method
@pytest.mark.parametrize("outcome", [True, False])
@pytest.mark.parametrize("path", [[], [("a", "go", True)], [("a", "go", False), ("b", "look", True)]])
def test_finite_on_the_smallest_tables(method, outcome, path):
    for shape in ([], [[(outcome, path)]], [[(outcome, path)] * 3]):
        result = run(method, columns_of(shape if path else []))
        assert np.isfinite(result.advantage).all()
        assert all(np.isfinite(value) for value in result.metrics.values())


@every_method
@FAST
@given(groups=groups)
def test_what_is_reported_is_finite_and_documented(method, groups):
    result = run(method, columns_of(groups))
    assert np.isfinite(result.advantage).all()
    assert set(result.metrics) <= set(METRICS) and set(result.columns) <= set(COLUMNS)
    assert all(np.isfinite(value) for value in result.metrics.values())


@every_method
@FAST
@given(groups=groups)
def test_equal_rewards_give_exactly_zero(method, groups):
    if any(getattr(stage, "lone", "zero") == "raw" for stage in method.stages):
        return  # that quirk is there to break this law
    valid = [[(True, [(p, a, True) for p, a, _ in path]) for _, path in group] for group in groups]
    columns = columns_of(valid)
    columns["reward"], columns["outcome"] = [0.0] * len(columns["t"]), [0.3] * len(columns["t"])
    assert not run(method, columns).advantage.any()


@every_method
@FAST
@given(groups=groups)
def test_no_global_random_state(method, groups):
    columns = columns_of(groups)
    np.random.seed(1)
    random.seed(1)
    before = np.random.get_state()[1].tolist(), random.getstate()
    first = run(method, columns)
    assert (np.random.get_state()[1].tolist(), random.getstate()) == before
    np.random.seed(2)
    assert run(method, columns).advantage.tolist() == first.advantage.tolist()


def test_every_stage_is_of_a_known_kind():
    kinds = (Steer, Filter, Shaper, Estimator, Reweighter, AuxLoss)
    assert all(issubclass(stage, kinds) for stage in all_stages().values())
