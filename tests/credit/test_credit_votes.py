"""Rows that do not vote: statistics over peers are those without them, in every stage of the folder."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from credit.parts.effect import effect
from credit.pipeline import COLUMNS, METRICS, Pipeline
from credit.signals import PerToken
from credit.table import StepTable
from tests.credit.stage_cases import columns_of, every_method, groups, run, with_tokens

STRUCTURE = {"scpo", "graphgpo", "prover"}
"""Stages that also read what was done where, and by a success: rows that abstain stay part of that."""


FAST = settings(max_examples=6, deadline=None, derandomize=True)


def without(columns, left_out):
    kept = [i for i, trajectory in enumerate(columns["trajectory"]) if trajectory not in left_out]
    return kept, {name: [values[i] for i in kept] for name, values in columns.items()}


def some(draw, trajectories):
    return {k for k in trajectories if draw.random() < 0.4}


@every_method
@FAST
@given(groups=groups, draw=st.randoms(use_true_random=False))
def test_a_trajectory_that_abstains_is_as_if_it_were_not_there(method, groups, draw):
    if STRUCTURE & {stage.name() for stage in method.stages}:
        return
    columns = columns_of(groups)
    silent = some(draw, sorted(set(columns["trajectory"])))
    kept, fewer = without(columns, silent)
    votes = [trajectory not in silent for trajectory in columns["trajectory"]]
    got = run(method, columns | {"votes": votes}).advantage
    np.testing.assert_allclose(got[kept], run(method, fewer).advantage, rtol=1e-9, atol=1e-9)


@every_method
@FAST
@given(groups=groups, draw=st.randoms(use_true_random=False), factor=st.sampled_from([0.5, 3.0]))
def test_what_a_trajectory_that_abstains_earned_moves_nobody(method, groups, draw, factor):
    if any(getattr(stage, "alpha_unit", "raw") == "success_reward" for stage in method.stages):
        return  # there a match is worth what its sibling earned
    columns = columns_of(groups)
    silent = some(draw, sorted(set(columns["trajectory"])))
    votes = [trajectory not in silent for trajectory in columns["trajectory"]]
    changed = dict(columns)
    for name in ("reward", "outcome"):
        changed[name] = [
            value if voting else factor * value for value, voting in zip(columns[name], votes, strict=True)
        ]
    got = [run(method, one | {"votes": votes}).advantage for one in (columns, changed)]
    np.testing.assert_allclose(got[1], got[0], rtol=1e-9, atol=1e-9)


@every_method
@FAST
@given(groups=groups, draw=st.randoms(use_true_random=False))
def test_the_penalty_of_a_step_that_abstains_moves_nobody(method, groups, draw):
    """Of steps after the first, so that every trajectory goes on voting; the penalty is all that changes."""
    if any(getattr(stage, "filter", "") for stage in method.stages):
        return  # scpo matches valid steps only
    columns = columns_of(groups)
    votes = np.array([t == 0 or draw.random() < 0.6 for t in columns["t"]], dtype=bool)
    valid = np.array(columns["valid"], dtype=bool)
    got = [
        run(method, columns | {"votes": votes, "valid": flags}).advantage
        for flags in (valid | ~votes, valid & votes)
    ]
    np.testing.assert_allclose(got[1], got[0], rtol=1e-9, atol=1e-9)


@every_method
@FAST
@given(groups=groups, draw=st.randoms(use_true_random=False), share=st.sampled_from([0.0, 0.5]))
def test_who_abstains_gets_nothing_and_breaks_nothing(method, groups, draw, share):
    columns = columns_of(groups)
    votes = [draw.random() < share for _ in columns["t"]]
    result = run(method, columns | {"votes": votes})
    silent = ~np.array(votes, dtype=bool)
    assert not result.advantage[silent].any()
    if result.token_advantage is not None:
        of_token = np.repeat(silent, with_tokens(columns)["length"])
        assert len(of_token) == len(result.token_advantage) and not result.token_advantage[of_token].any()
    assert np.isfinite(result.advantage).all()
    # a deviation over the spread of equal voters would be millions; `first_row` has such for voters too
    bound = np.inf if any(getattr(s, "unit", "") == "first_row" for s in method.stages) else 1e4
    assert all(np.isfinite(value) and abs(value) < bound for value in result.metrics.values())
    assert set(result.metrics) <= set(METRICS) and set(result.columns) <= set(COLUMNS)
    assert all(np.abs(values).max(initial=0) < bound for values in result.columns.values())
    if votes:
        assert result.metrics.get("credit/abstaining", 0.0) == pytest.approx(1 - np.mean(votes))


def table(outcomes, votes, **columns):
    """One group of one-step trajectories."""
    n = len(outcomes)
    given = dict(
        group=[0] * n,
        trajectory=range(n),
        t=[0] * n,
        reward=np.array(outcomes, float),
        outcome=np.array(outcomes, float),
        success=np.array(outcomes) > 0,
        anchor=[f"place {k}" for k in range(n)],
        votes=votes,
    )
    return StepTable(**{name: np.asarray(values) for name, values in (given | columns).items()})


ONE_OUT = [True, False, True, True]


@pytest.mark.parametrize(
    ("method", "expected", "voting"),
    [
        ({"grpo": {"norm": "mean"}}, [2 / 3, 0, -1 / 3, -1 / 3], [0.5, 0.5, -0.5, -0.5]),
        ({"grpo": {}}, [2 / 3**0.5, 0, -1 / 3**0.5, -1 / 3**0.5], [0.75**0.5] * 2 + [-(0.75**0.5)] * 2),
        ({"rloo": {}}, [1, 0, -0.5, -0.5], [2 / 3, 2 / 3, -2 / 3, -2 / 3]),
        (
            {"returns": {}, "gigpo": {"norm": "mean"}},
            [2 / 3, 0, -1 / 3, -1 / 3],
            [0.5, 0.5, -0.5, -0.5],
        ),
    ],
)
def test_two_successes_of_four_with_one_out(method, expected, voting):
    """What is left of [1, 1, 0, 0] is [1, 0, 0]: mean 1/3, sample standard deviation 1/√3."""
    pipeline = Pipeline.from_config(method)
    got = pipeline.run(table([1, 1, 0, 0], ONE_OUT)).advantage
    assert got == pytest.approx(expected, abs=1e-5)
    assert pipeline.run(table([1, 1, 0, 0], [True] * 4)).advantage == pytest.approx(voting, abs=1e-5)


def test_an_anchor_group_leaves_the_row_out_of_mean_and_size():
    """Returns 1, 1, 0, 0 at one place without the second: A^S as A^E, and three rows at the place."""
    pipeline = Pipeline.from_config({"returns": {}, "gigpo": {"norm": "mean"}})
    result = pipeline.run(table([1, 1, 0, 0], ONE_OUT, anchor=["here"] * 4))
    assert result.advantage == pytest.approx([4 / 3, 0, -2 / 3, -2 / 3])
    assert result.columns["gigpo.anchor_size"].tolist() == [3] * 4
    alone = pipeline.run(table([1, 0], [True, False], anchor=["here"] * 2))
    assert alone.metrics["credit/gigpo/singleton_fraction"] == 1.0 and not alone.advantage.any()


def test_a_member_abstains_only_if_all_of_its_rows_do():
    """Two rows each; one row of the winner is out, so it still votes once: mean 1/2."""
    rows = dict(group=[0] * 4, trajectory=[0, 0, 1, 1], t=[0, 1, 0, 1], anchor=list("abcd"))
    rows |= dict(reward=[0, 1.0, 0, 0], outcome=[1.0, 1.0, 0, 0], success=[True, True, False, False])
    pipeline = Pipeline.from_config({"grpo": {"norm": "mean"}})
    one_out = StepTable(**rows, votes=[True, False, True, True])
    assert pipeline.run(one_out).advantage.tolist() == [0.5, 0, -0.5, -0.5]
    both_out = replace(one_out, votes=np.array([False, False, True, True]))
    assert not pipeline.run(both_out).advantage.any()
    first_row = Pipeline.from_config({"grpo": {"norm": "mean", "unit": "first_row"}})
    later = replace(one_out, votes=np.array([False, True, True, True]))
    assert first_row.run(later).advantage.tolist() == [0, 0.5, -0.5, -0.5]


def test_dynamic_sampling_asks_voters_only():
    (keeps,) = Pipeline.from_config({"dynamic_sampling": {}, "grpo": {}}).filters
    assert keeps.keep(table([1, 0, 0, 0], [True] * 4)).all()
    assert not keeps.keep(table([1, 0, 0, 0], [False, True, True, True])).any()


def test_a_stage_is_measured_over_the_rows_that_vote():
    """By hand: rows that abstain are 0 with and without it, and are not counted as alike."""
    one = table([1, 1, 0, 0], ONE_OUT, length=[1] * 4)
    full = effect(one, np.array([2.0, 0.0, -1.0, -1.0]), np.array([1.0, 0.0, -1.0, 1.0]))
    assert full["effect_changed"] == pytest.approx(2 / 3)
    assert full["effect_flips"] == pytest.approx(1 / 3)
    assert full["effect_distance"] == pytest.approx((1 + 0 + 2) / 3)
    tokens = replace(one, length=np.array([1, 5, 2, 1]))
    a, b = np.repeat([2.0, 0.0, -1.0, -1.0], tokens.length), np.repeat([1.0, 0.0, -1.0, 1.0], tokens.length)
    assert effect(tokens, PerToken(a), PerToken(b))["effect_changed"] == pytest.approx(2 / 4)
