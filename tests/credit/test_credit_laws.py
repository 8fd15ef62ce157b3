"""Laws that every stage of the folder obeys, with every choice of every option."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from credit.base import AuxLoss, Estimator, Filter, Reweighter, Shaper, Steer
from credit.pipeline import COLUMNS, METRICS, Pipeline
from credit.registry import all_stages
from credit.table import StepTable
from tests.credit.stage_cases import (
    FAST,
    SERVICES,
    at_their_bounds,
    columns_of,
    every_method,
    groups,
    reordered,
    run,
)


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


def same(first, second, columns, services=SERVICES):
    table = StepTable(**columns)
    got = Pipeline.from_config(first).run(table, services).advantage
    np.testing.assert_allclose(
        got, Pipeline.from_config(second).run(table, services).advantage, rtol=0, atol=1e-12
    )


@FAST
@given(
    groups=groups, norm=st.sampled_from(["mean", "mean_std"]), unit=st.sampled_from(["trajectories", "rows"])
)
def test_gigpo_without_step_term_is_grpo(groups, norm, unit):
    outcome = {"norm": norm, "unit": unit}
    same(
        {"returns": {}, "gigpo": outcome | {"omega": 0.0}},
        {"returns": {}, "grpo": outcome},
        columns_of(groups),
    )


@FAST
@given(groups=groups, anchors=st.sampled_from(["exact", "similarity"]))
def test_gigpo_without_shared_anchors_is_grpo(groups, anchors):
    columns = columns_of(groups)
    columns["anchor"] = [chr(0x4E00 + i) for i in range(len(columns["t"]))]
    same({"returns": {}, "gigpo": {"anchors": anchors}}, {"returns": {}, "grpo": {}}, columns)


@FAST
@given(groups=groups, monotone=st.sampled_from(["running_max", "chain", "none"]))
def test_scpo_without_alpha_is_gigpo(groups, monotone):
    scpo = {"alpha": 0.0, "monotone": monotone, "singleton_credit": "raw"}
    same({"returns": {}, "scpo": scpo, "gigpo": {}}, {"returns": {}, "gigpo": {}}, columns_of(groups))


@FAST
@given(groups=groups, outcome=st.booleans())
def test_scpo_is_gigpo_where_all_fail_or_all_succeed(groups, outcome):
    columns = columns_of([[(outcome, path) for _, path in group] for group in groups])
    same({"returns": {}, "scpo": {}, "gigpo": {}}, {"returns": {}, "gigpo": {}}, columns)


@FAST
@given(groups=groups)
def test_rloo_is_grpo_without_std_times_n_over_n_less_one(groups):
    columns = columns_of(groups)
    table = StepTable(**columns)
    grpo = Pipeline.from_config({"grpo": {"norm": "mean"}}).run(table).advantage
    rloo = Pipeline.from_config({"rloo": {}}).run(table).advantage
    sizes = {
        g: len({k for k, h in zip(columns["trajectory"], columns["group"], strict=True) if h == g})
        for g in columns["group"]
    }
    factor = [sizes[g] / max(sizes[g] - 1, 1) for g in columns["group"]]
    np.testing.assert_allclose(rloo, grpo * factor, atol=1e-12)


def test_every_stage_is_of_a_known_kind():
    kinds = (Steer, Filter, Shaper, Estimator, Reweighter, AuxLoss)
    assert all(issubclass(stage, kinds) for stage in all_stages().values())
