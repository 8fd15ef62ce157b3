"""What methods come to in their limits: one is another."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from credit.pipeline import Pipeline
from credit.table import StepTable
from tests.credit.laws import FAST, SERVICES, columns_of, groups


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
