"""Pair scorers and the wrapper that asks each distinct pair once."""

import difflib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from credit.scorer import UniquePairs, make_scorer, scorer_names

texts = st.lists(
    st.sampled_from(["You", "arrive", "at", "shelf", "1", "2", "cup", "nothing"]), max_size=8
).map(" ".join)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(pairs=st.lists(st.tuples(texts, texts), max_size=8))
def test_lexical_is_the_word_ratio_whatever_the_batch(pairs):
    got = make_scorer("lexical").score(pairs)
    want = [difflib.SequenceMatcher(None, a.lower().split(), b.lower().split()).ratio() for a, b in pairs]
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-12)
    assert got.shape == (len(pairs),) and ((got >= 0) & (got <= 1)).all()


def test_lexical_by_hand():
    pairs = [("go to shelf 1", "go to shelf 2"), ("Go", "go"), ("a", "b"), ("", "a"), ("", " ")]
    assert make_scorer("lexical").score(pairs).tolist() == [0.75, 1.0, 0.0, 0.0, 1.0]


class Counting:
    def __init__(self):
        self.calls = []

    def score(self, pairs):
        self.calls.append(list(pairs))
        return np.full(len(pairs), 0.5)


def test_each_distinct_pair_is_asked_once_and_identical_texts_never():
    scorer = Counting()
    unique = UniquePairs(scorer)
    assert unique.score([("a", "b"), ("a", "a"), ("a", "b"), ("b", "a")]).tolist() == [0.5, 1.0, 0.5, 0.5]
    assert unique.score([("a", "b"), ("c", "b")]).tolist() == [0.5, 0.5]
    assert unique.score([]).shape == (0,)
    assert scorer.calls == [[("a", "b"), ("b", "a")], [("c", "b")]]


def test_memory_is_bounded_and_never_changes_an_answer():
    scorer = Counting()
    unique = UniquePairs(scorer, capacity=2)
    unique.score([("a", "b"), ("c", "d")])
    assert unique.score([("a", "b"), ("e", "f")]).tolist() == [0.5, 0.5]
    assert unique.score([("e", "f")]).tolist() == [0.5]
    assert scorer.calls == [[("a", "b"), ("c", "d")], [("e", "f")]]
    assert unique.score([("g", str(i)) for i in range(5)]).tolist() == [0.5] * 5
    with pytest.raises(ValueError, match="capacity: got -1"):
        UniquePairs(scorer, capacity=-1)


def test_names_and_options_have_a_did_you_mean():
    assert "lexical" in scorer_names()
    with pytest.raises(ValueError, match="no scorer 'lexicl'; did you mean 'lexical'"):
        make_scorer("lexicl")
    with pytest.raises(ValueError, match="credit.scorer.lexical: no option 'device'"):
        make_scorer("lexical", device="cpu")
