"""Which groups dynamic sampling keeps."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from credit.pipeline import Pipeline
from credit.stages.dynamic_sampling import DynamicSampling
from credit.table import StepTable

FAST = settings(max_examples=15, deadline=None, derandomize=True)


def table_of(groups, valid=None):
    """Groups of outcomes, trajectories of two steps."""
    rows = [(g, outcome) for g, outcomes in enumerate(groups) for outcome in outcomes]
    return StepTable(
        group=np.repeat([g for g, _ in rows], 2),
        trajectory=np.repeat(np.arange(len(rows)), 2),
        t=[0, 1] * len(rows),
        reward=np.ravel([[0.0, outcome] for _, outcome in rows]),
        outcome=np.repeat([float(outcome) for _, outcome in rows], 2),
        success=np.repeat([outcome > 0 for _, outcome in rows], 2),
        anchor=["here"] * 2 * len(rows),
        valid=valid,
    )


@pytest.mark.parametrize(
    ("outcomes", "kept"),
    [
        ([0.0] * 8, False),
        ([10.0] * 8, False),
        ([0.0] * 7 + [10.0], True),
        ([0.0] + [0.95] * 7, True),
        ([0.3] * 8, False),
        ([0.1 + 0.2, 0.3, 0.3], False),
        ([1.0, 1.0, 1.0 + 1e-9], False),
        ([10.0], False),
    ],
)
def test_groups_of_equal_outcomes_go(outcomes, kept):
    assert DynamicSampling().keep(table_of([outcomes])).tolist() == [kept] * 2 * len(outcomes)


def test_penalties_do_not_keep_a_group():
    table = table_of([[0.0, 0.0]], valid=[False, True, True, True])
    assert not DynamicSampling().keep(table).any()


@FAST
@given(groups=st.lists(st.lists(st.sampled_from([0.0, 0.5, 10.0]), min_size=1, max_size=4), max_size=5))
def test_it_keeps_exactly_the_groups_that_grpo_learns_from(groups):
    if not groups:
        return
    table = table_of(groups)
    learns = Pipeline.from_config({"grpo": {}}).run(table).advantage != 0
    groups_learning = np.unique(table.group[learns])
    assert DynamicSampling().keep(table).tolist() == np.isin(table.group, groups_learning).tolist()


def test_an_empty_table_keeps_nothing():
    empty = {name: [] for name in ("group", "trajectory", "t", "reward", "outcome", "success", "anchor")}
    assert DynamicSampling().keep(StepTable(**empty)).shape == (0,)


def test_credit_is_that_of_the_method_without_it():
    """The filter has done its work before the table is made."""
    table = table_of([[0.0, 10.0], [0.0, 0.0]])
    folder = Path(__file__).parents[2] / "configs" / "credit"
    for plain, filtered in (("grpo", "dapo"), ("gigpo", "gigpo_dynamic")):
        methods = [Pipeline.from_yaml(folder / f"{name}.yaml") for name in (plain, filtered)]
        first, second = (method.run(table).advantage.tolist() for method in methods)
        assert first == second
        assert [len(method.filters) for method in methods] == [0, 1]


def test_the_presets_keep_what_their_method_says():
    folder = Path(__file__).parents[2] / "configs" / "credit"
    for plain, filtered in (("grpo", "dapo"), ("gigpo", "gigpo_dynamic"), ("scpo", "scpo_dynamic")):
        stages = Pipeline.from_yaml(folder / f"{filtered}.yaml").stages
        assert stages[0] == DynamicSampling(max_batches=10)
        assert stages[1:] == Pipeline.from_yaml(folder / f"{plain}.yaml").stages
