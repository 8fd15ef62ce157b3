"""T2PO's rules: which turns are played again, when thinking stops, and the signal behind both."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from credit.parts.t2po_rules import must_resample, resample, stop_thinking, turn_score, uncertainty

FAST = settings(max_examples=50, deadline=None, derandomize=True)


def test_small_changes_are_played_again_but_not_no_change_at_all():
    score, previous = np.array([0.5, 0.5, 0.5, 0.5]), np.array([0.5, 0.4, 0.1, 0.9])
    assert must_resample(score, previous, first_step=False).tolist() == [False, True, False, False]
    assert must_resample(score, previous, first_step=False, eta=0.5).tolist() == [False, True, True, True]
    assert not must_resample(score, previous, first_step=True).any()


def test_the_limit_itself_is_enough_of_a_change():
    assert not must_resample(np.array([0.75]), np.array([0.5]), first_step=False, eta=0.25).any()


def test_turns_are_played_again_until_they_say_something_new():
    asked = []

    def play(rows):
        asked.append(rows.tolist())
        return np.array([[0.55, 0.9], [0.8]][len(asked) - 1])

    score, tries = resample(
        np.array([0.6, 0.4, 0.0]), np.array([0.5, 0.5, 0.5]), play, first_step=False, eta=0.3
    )
    assert asked == [[0, 1], [0]] == [rows.tolist() for rows in tries]
    assert score.tolist() == [0.8, 0.9, 0.0]


@pytest.mark.parametrize("max_try", [0, 1, 3])
def test_tries_are_limited(max_try):
    start = np.array([0.6])
    score, tries = resample(
        start, np.array([0.5]), lambda rows: np.array([0.55]), first_step=False, max_try=max_try
    )
    assert len(tries) == max_try
    assert score.tolist() == [0.55 if max_try else 0.6] and start.tolist() == [0.6]


def test_uncertainty_by_hand():
    entropy = np.array([0.0, 1.0, 2.0])
    # mean -log p of the candidates: 1, 3, 2, so scaled 0, 1, 0.5
    top_logp = -np.array([[1.0, 1.0], [2.0, 4.0], [2.0, 2.0]])
    np.testing.assert_allclose(uncertainty(entropy, top_logp, 0.5), [0.5, 0.25, 0.75])
    np.testing.assert_allclose(uncertainty(entropy, top_logp, 1.0), [0, 0.5, 1])
    np.testing.assert_allclose(uncertainty(entropy, top_logp, 0.0), [1, 0, 0.5])


def test_uncertainty_of_constant_and_of_no_tokens():
    assert uncertainty(np.ones(3), np.full((3, 2), -1.0)).tolist() == [0.5] * 3
    assert uncertainty(np.zeros(0), np.zeros((0, 5))).tolist() == []


def test_the_turn_score_is_the_geometric_mean():
    assert turn_score(np.array([0.25, 1.0])) == pytest.approx(0.5)
    assert turn_score(np.array([0.0, 1.0])) == pytest.approx(1e-3)
    assert turn_score(np.zeros(0)) == 0.0


def test_thinking_stops_when_the_signal_has_settled_after_its_peak():
    signal = np.array([0.1, 0.9, 0.5, 0.5, 0.5, 0.5])
    # changes .8 .4 0 0 0: the first two after the peak that are small on average end with token 5
    options = {"window": 2, "epsilon": 0.1}
    assert stop_thinking(signal, min_prefix=0, **options) == 5
    assert stop_thinking(signal, min_prefix=6, **options) == 6
    assert stop_thinking(signal, min_prefix=7, **options) is None
    assert stop_thinking(signal[:4], min_prefix=0, **options) is None


@pytest.mark.parametrize("signal", [[], [0.5], np.linspace(0, 0.01, 100)])
def test_thinking_goes_on_without_tokens_or_while_the_signal_rises(signal):
    assert stop_thinking(np.array(signal), window=4, min_prefix=0) is None


def test_a_signal_that_is_flat_from_the_start_has_its_peak_at_the_first_token():
    assert stop_thinking(np.full(10, 0.3), window=4, min_prefix=0) == 5


@FAST
@given(
    signal=st.lists(st.integers(0, 4), max_size=12).map(lambda v: np.array(v) / 4),
    window=st.integers(1, 4),
    min_prefix=st.integers(0, 6),
)
def test_thinking_stops_where_the_definition_says(signal, window, min_prefix):
    def settled(n):
        changes = [abs(signal[t] - signal[t - 1]) for t in range(n - window, n)]
        return sum(changes) / window < 0.3 and int(np.argmax(signal[:n])) < n - window

    first = max(min_prefix, window + 1)
    want = next((n for n in range(first, len(signal) + 1) if settled(n)), None)
    assert stop_thinking(signal, window=window, epsilon=0.3, min_prefix=min_prefix) == want
