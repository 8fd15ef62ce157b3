"""What a stage changes in the end: by hand, against the method without it; values per token and per row."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import pearsonr

from configs.params import param
from credit.base import Estimator, Filter, Reweighter, Shaper, Steer
from credit.pipeline import METRICS, Pipeline
from credit.registry import all_stages
from credit.signals import Context, Estimated, Shaped
from credit.stages.returns import Returns
from credit.table import StepTable
from tests.credit.stage_cases import SERVICES, columns_of, configurations, groups, with_tokens
from tests.credit.teacher_tables import BASE, random_columns, run

FAST = settings(max_examples=8, deadline=None, derandomize=True)


@dataclass(frozen=True)
class Taken(Estimator):
    """The returns as they are."""

    compares_returns = True

    def estimate(self, table, signals, context):
        CALLS.append(("estimate", context.state))
        return Estimated(signals.returns)


@dataclass(frozen=True)
class Bonus(Shaper):
    """Adds what the test says."""

    size: float = param(1.0, "factor of the bonus", low=0)
    credited = "bonus"

    def shape(self, table, signals, context):
        bonus = self.size * np.array([0.0, 3.0, -4.0, 0.0, 1.0])[: len(table)]
        CALLS.append(("shape", context.state))
        return Shaped(
            signals.returns + bonus,
            columns={"bonus": bonus},
            state={"n": (context.state or {}).get("n", 0) + 1},
        )


@dataclass(frozen=True)
class Noise(Reweighter):
    """Draws, and asks a service if it is told to."""

    def reweight(self, table, signals, context):
        CALLS.append(("noise", context.state))
        return Estimated(signals.advantage * context.rng("noise").uniform(1, 2, len(table)))


CALLS = []


@pytest.fixture(autouse=True)
def calls():
    CALLS.clear()
    return CALLS


def five_rows(returns):
    n = len(returns)
    return StepTable(
        group=[0] * n,
        trajectory=range(n),
        t=[0] * n,
        reward=[0.0] * n,
        outcome=[0.0] * n,
        success=[False] * n,
        anchor=["here"] * n,
        return_to_go=returns,
    )


def of(result, stage):
    """The effect of a stage of this file (all are called after it) or of the folder."""
    prefix = f"credit/{stage}/effect_"
    return {k.removeprefix(prefix): v for k, v in result.metrics.items() if k.startswith(prefix)}


HERE = __name__.rsplit(".", 1)[-1]


def test_by_hand():
    """B = 1, -2, 3, 0, -5 and A = 1, 1, -1, 0, -4: two of five change sign, three change at all."""
    result = Pipeline((Bonus(), Taken())).run(five_rows([1.0, -2.0, 3.0, 0.0, -5.0]))
    assert result.advantage.tolist() == [1.0, 1.0, -1.0, 0.0, -4.0]
    found = of(result, HERE)
    assert found["flips"] == 0.4 and found["changed"] == 0.6
    assert found["distance"] == pytest.approx((3 + 4 + 1) / 5)
    assert found["relative"] == pytest.approx((3 + 4 + 1) / (1 + 2 + 3 + 0 + 5))
    # about the means -0.6 of both: sum of products 16 - 1.8, of squares 17.2 and 37.2
    assert found["correlation"] == pytest.approx(14.2 / np.sqrt(17.2 * 37.2))
    # rows 1 and 4 are credited: one of them ends above 0, none was
    assert (found["credited_positive"], found["credited_positive_without"]) == (0.5, 0.0)


def test_a_stage_of_size_0_changes_nothing():
    found = of(Pipeline((Bonus(size=0.0), Taken())).run(five_rows([1.0, -2.0, 3.0])), HERE)
    assert found == {"correlation": 1.0, "distance": 0.0, "changed": 0.0, "flips": 0.0, "relative": 0.0}


@pytest.mark.parametrize(
    ("returns", "correlation", "relative"),
    [([0.0, 0.0, 0.0], 0.0, None), ([0.0, -3.0, 4.0], 0.0, 1.0), ([0.0, 0.0], 0.0, None), ([7.0], 1.0, 0.0)],
)
def test_without_variance_or_size(returns, correlation, relative):
    """Nothing without the stage; constant with it; nothing again; one row, which it leaves alone."""
    found = of(Pipeline((Bonus(), Taken())).run(five_rows(returns)), HERE)
    assert found["correlation"] == correlation and found.get("relative") == relative


def test_tiny_and_huge_advantages_correlate_as_others_do():
    """Squares of 1e-200 are 0, those of 1e200 infinite."""
    from credit.parts.effect import effect

    table, a, b = five_rows([1.0, -2.0, 3.0]), np.array([1.0, 2.0, 4.0]), np.array([2.0, -1.0, 3.0])
    for scale in (1e-200, 1e200):
        found = effect(table, a * scale, b * scale)["effect_correlation"]
        assert found == pytest.approx(pearsonr(a, b).statistic)


def test_nothing_is_reported_of_an_empty_table():
    assert not of(Pipeline((Bonus(), Taken())).run(five_rows([])), HERE)


def test_only_what_follows_is_run_again_and_only_for_a_stage_that_can_be_left_out():
    table = five_rows([1.0, 2.0])
    Pipeline((Taken(),)).run(table)
    Pipeline((Returns(), Taken())).run(table)
    assert [name for name, _ in CALLS] == ["estimate"] * 2
    CALLS.clear()
    Pipeline((Bonus(), Taken())).run(table)
    assert [name for name, _ in CALLS] == ["shape", "estimate", "estimate"]
    CALLS.clear()
    Pipeline((Taken(), Noise())).run(table)
    assert [name for name, _ in CALLS] == ["estimate", "noise"], (
        "the last stage's handed advantage is at hand"
    )


def test_a_second_run_has_the_same_state_and_leaves_no_trace():
    @dataclass(frozen=True)
    class Doubled(Bonus):
        """The same file's name, so the same state."""

    first, second = (
        Pipeline((Bonus(size=0.0), Taken())),
        Pipeline((Doubled(size=0.0), Bonus(size=0.0), Taken())),
    )
    table = five_rows([1.0, 2.0])
    state = first.run(table).state
    assert state == {HERE: {"n": 1}}
    CALLS.clear()
    assert second.run(table, state=state).state == {HERE: {"n": 2}}
    assert {str(seen) for name, seen in CALLS if name == "shape"} == {"{'n': 1}"}


def test_a_second_run_draws_the_same():
    found = of(
        Pipeline((replace(Bonus(), size=0.0), Taken(), Noise())).run(five_rows([1.0, -2.0, 3.0]), seed=4),
        HERE,
    )
    noise = Context(seed=4).rng("noise").uniform(1, 2, 3)
    # the file's stages share a name: what is left is the last one's, the noise's own
    assert found["distance"] == pytest.approx(np.mean(np.abs([1.0, -2.0, 3.0] * (noise - 1))))


def test_a_stage_before_one_that_asks_a_service_is_not_measured():
    class Counting:
        canonical, asked = None, 0

        def score(self, pairs):
            self.asked += 1
            return np.full(len(pairs), 0.8)

    columns = columns_of(
        [[(True, [("a", "go", True)] * 2), (False, [("a", "look", True), ("b", "go", True)])]]
    )
    scorer, alone = Counting(), Counting()
    both = Pipeline.from_config({"returns": {}, "graphgpo": {}, "scpo": {}, "gigpo": {}})
    result = both.run(StepTable(**columns), {"pair_scorer": scorer})
    Pipeline.from_config({"returns": {}, "scpo": {}, "gigpo": {}}).run(
        StepTable(**columns), {"pair_scorer": alone}
    )
    assert scorer.asked == alone.asked > 0
    assert of(result, "scpo") and not of(result, "graphgpo")


@pytest.mark.parametrize("method", [case for case in configurations() if not case.id.startswith("prover")])
@FAST
@given(groups=groups)
def test_it_is_the_method_against_the_method_without_the_stage(method, groups):
    table = StepTable(**with_tokens(columns_of(groups)))
    result = method.run(table, SERVICES, seed=3, step=1)
    acting = [s for s in method.stages if isinstance(s, (Shaper, Reweighter)) and not isinstance(s, Returns)]
    for stage in acting:
        others = Pipeline([s for s in method.stages if s is not stage], "without")
        a, b = result, others.run(table, SERVICES, seed=3, step=1)
        found = of(result, stage.name())
        if not len(table):
            assert not found
            continue
        if a.token_advantage is not None or b.token_advantage is not None:
            a, b = (
                np.repeat(r.advantage, table.length) if r.token_advantage is None else r.token_advantage
                for r in (a, b)
            )
        else:
            a, b = a.advantage, b.advantage
        assert found["changed"] == np.mean(a != b)
        assert found["flips"] == np.mean((a > 0) & (b < 0) | (a < 0) & (b > 0))
        assert found["distance"] == pytest.approx(np.abs(a - b).mean())
        if (a != b).any() and min(np.ptp(a), np.ptp(b)) > 1e-6:
            assert found["correlation"] == pytest.approx(pearsonr(a, b).statistic, abs=1e-6)
    if not acting:
        assert not any("/effect_" in name for name in result.metrics)


@FAST
@given(groups=groups, order=st.sampled_from(["similarity_desc", "chronological", "random"]))
def test_scpo_without_alpha_has_no_effect(groups, order):
    method = Pipeline.from_config({"returns": {}, "scpo": {"alpha": 0.0, "order": order}, "gigpo": {}})
    result = method.run(StepTable(**columns_of(groups)), SERVICES)
    found = of(result, "scpo")
    if found:
        assert (found["correlation"], found["distance"], found["flips"], found["changed"]) == (
            1.0,
            0.0,
            0.0,
            0.0,
        )
        assert found.get("credited_positive") == found.get("credited_positive_without")


def test_a_stage_that_moves_credit_between_tokens_alone_is_seen():
    """StepOPSD keeps the mean of every row, so rows would say that it does nothing."""
    table = StepTable(**random_columns(3, unknown=0.0, empty=False))
    result = run({**BASE, "stepopsd": {"temper": "none"}}, table)
    plain = run(BASE, table)
    np.testing.assert_allclose(result.advantage, plain.advantage, atol=1e-12)
    assert of(result, "stepopsd")["changed"] > 0.1


def test_what_can_be_left_out_is_documented():
    for name, stage in all_stages().items():
        measured = issubclass(stage, (Shaper, Reweighter)) and name != "returns"
        assert (f"credit/{name}/effect_correlation" in METRICS) == measured
        assert (f"credit/{name}/effect_credited_positive" in METRICS) == (measured and bool(stage.credited))
        assert not (measured and issubclass(stage, (Filter, Steer, Estimator)))
        assert not stage.credited or stage.credited in stage.columns_doc
