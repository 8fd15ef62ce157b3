"""REINFORCE++: whitening over tokens, the baseline variant, and what it shares with GRPO."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from credit.pipeline import Pipeline
from credit.stages.reinforce_pp import whiten
from credit.table import StepTable

FAST = settings(max_examples=30, deadline=None, derandomize=True)


def one_step(scores, lengths, groups=None):
    """Trajectories of one step each."""
    n = len(scores)
    return StepTable(
        group=groups or [0] * n,
        trajectory=range(n),
        t=[0] * n,
        reward=scores,
        outcome=scores,
        success=[score > 0 for score in scores],
        anchor=["start"] * n,
        length=np.array(lengths, dtype=int),
    )


def run(table, **options):
    return Pipeline.from_config({"reinforce_pp": options}).run(table)


def test_every_token_has_one_vote():
    # tokens 10, 0, 0, 0: mean 2.5, sample variance (56.25 + 3 * 6.25) / 3 = 25
    result = run(one_step([10.0, 0.0], [1, 3]), eps=0.0)
    assert result.advantage.tolist() == [1.5, -0.5]
    assert result.token_advantage is None
    assert result.metrics["credit/reinforce_pp/scale"] == 5.0


def test_a_discount_inside_the_response_gives_one_value_a_token():
    # tokens 5, 10, 0, 0: mean 3.75, sum of squares 68.75
    result = run(one_step([10.0, 0.0], [2, 2]), gamma=0.5, eps=0.0)
    want = np.array([1.25, 6.25, -3.75, -3.75]) / np.sqrt(68.75 / 3)
    np.testing.assert_allclose(result.token_advantage, want, rtol=0, atol=1e-15)
    np.testing.assert_allclose(result.advantage, [want[:2].mean(), want[2]], rtol=0, atol=1e-15)


def test_the_plain_variant_compares_tasks_and_the_baseline_does_not():
    table = one_step([10.0, 10.0, 0.0, 0.0], [1] * 4, groups=[0, 0, 1, 1])
    assert run(table).advantage[0] > 0.8
    assert not run(table, variant="baseline").advantage.any()


def test_baseline_by_hand():
    # group means 5 and 1: left are 5, -5, 1, -1; sum of squares 52 over 3
    table = one_step([10.0, 0.0, 2.0, 0.0], [1] * 4, groups=[0, 0, 1, 1])
    want = np.array([5, -5, 1, -1]) / np.sqrt(52 / 3)
    np.testing.assert_allclose(run(table, variant="baseline", eps=0.0).advantage, want, atol=1e-15)


def test_a_lone_member_has_no_advantage_and_no_vote():
    pair = one_step([10.0, 0.0], [2, 1])
    with_lone = one_step([10.0, 0.0, 7.0], [2, 1, 5], groups=[0, 0, 1])
    got = run(with_lone, variant="baseline").advantage
    assert got.tolist() == [*run(pair, variant="baseline").advantage, 0.0]
    assert run(with_lone, variant="baseline", lone="raw", unit="rows").advantage[2] > 0


def test_a_row_without_tokens_has_no_vote_and_no_advantage():
    assert run(one_step([10.0, 0.0, 99.0], [1, 3, 0]), eps=0.0).advantage.tolist() == [1.5, -0.5, 0.0]


@pytest.mark.parametrize("lengths", [[], [1], [0, 0], [0, 1]])
@pytest.mark.parametrize("options", [{}, {"gamma": 0.9}, {"variant": "baseline"}])
def test_fewer_than_two_tokens_give_zero(lengths, options):
    result = run(one_step([10.0, 3.0][: len(lengths)], lengths), **options)
    assert not result.advantage.any()


def test_equal_scores_give_zero_unless_the_count_is_biased_as_in_the_public_code():
    table = one_step([10.0] * 3, [2, 3, 1])
    assert not run(table).advantage.any()
    # mean 10 * 6 / (6 + 1e-8): the deviation of 1.7e-8 is divided by about 1e-4
    biased = run(table, count_eps=1e-8).advantage
    np.testing.assert_allclose(biased, 1e-8 / 6 * 10 / 1e-4, rtol=1e-5)


def test_the_baseline_has_no_discount():
    with pytest.raises(ValueError, match="gamma: got 0.9 with variant baseline.*leave gamma at 1"):
        run(one_step([1.0], [1]), variant="baseline", gamma=0.9)


rows = st.lists(st.tuples(st.integers(0, 10), st.integers(1, 4)), min_size=2, max_size=8)


@FAST
@given(rows=rows, gamma=st.sampled_from([1.0, 0.9]))
def test_tokens_are_white(rows, gamma):
    """Mean 0 and variance 1 over the tokens, or all 0."""
    table = one_step([float(s) for s, _ in rows], [n for _, n in rows])
    result = run(table, gamma=gamma, eps=0.0)
    tokens = result.token_advantage
    if tokens is None:
        tokens = np.repeat(result.advantage, table.length)
    if tokens.any():
        np.testing.assert_allclose([tokens.mean(), tokens.var(ddof=1)], [0, 1], atol=1e-9)


@FAST
@given(scores=st.lists(st.integers(0, 10), min_size=2, max_size=8), length=st.integers(1, 3))
def test_in_one_group_of_equal_steps_it_is_grpo_up_to_the_number_of_tokens(scores, length):
    table = one_step([float(s) for s in scores], [length] * len(scores))
    grpo = Pipeline.from_config({"grpo": {"eps": 0.0}}).run(table).advantage
    n = len(scores)
    votes = np.sqrt((n * length - 1) / ((n - 1) * length))  # sample variances over tokens and over rows
    for variant in ("plain", "baseline"):
        np.testing.assert_allclose(run(table, variant=variant, eps=0.0).advantage, grpo * votes, atol=1e-9)


def test_whiten_counts_by_weight():
    values, weight = np.array([1.0, 4.0, 2.0]), np.array([2.0, 1.0, 0.0])
    got, scale = whiten(values, weight, eps=0.0)
    np.testing.assert_allclose(got[:2], np.array([-1, 2]) / np.sqrt(3))
    assert got[2] == 0 and scale == pytest.approx(np.sqrt(3))
