"""Token-set ratio: numbers worked by hand, numbers of the published library, and what must always hold."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.webshop.similar import token_set_ratio

# Pairs with their score by thefuzz 0.22.1.
KNOWN = Path(__file__).parents[2] / "fixtures" / "webshop" / "similar.json"

TEXTS = st.text(st.sampled_from("abc 1-'(,|éÑ你_İ"), max_size=14)


@pytest.mark.parametrize(
    ("one", "other", "score"),
    [
        ("red", "red", 100),
        ("large", "x-large", 100),  # all words of one in the other
        ("7.5 wide", "7.5", 100),
        ("Pack of 6, 8 Ounce", "8 ounce (pack of 6)", 100),
        ("color", "('color', 'a01#teal')", 100),
        ("", "red", 0),
        ("---", "red", 0),
        ("abc", "xyz", 0),
        ("3x-large", "x-large", 93),  # large + 3x | x: 100 · 2·7 / 15 rounded
        ("ab", "ac", 50),  # one letter of two in order
        ("tan one", "tan two", 71),  # "tan " is shared: 2·(4 + 1)/14 against 2·3/10
    ],
)
def test_numbers_worked_by_hand(one, other, score):
    assert token_set_ratio(one, other) == score


def test_numbers_of_the_library():
    pairs = json.loads(KNOWN.read_text(encoding="utf-8"))
    assert len(pairs) >= 200
    assert [token_set_ratio(one, other) for one, other, _ in pairs] == [score for *_, score in pairs]


@given(TEXTS, TEXTS)
def test_laws(one, other):
    score = token_set_ratio(one, other)
    assert 0 <= score <= 100
    assert score == token_set_ratio(other, one)
    assert score == token_set_ratio(one.upper() if one.isascii() else one, other)
    assert score == token_set_ratio(" ".join([*reversed(one.split(" "))]), other)


@given(st.sets(st.sampled_from(["a", "bc", "d1", "ee"]), min_size=1), st.sets(st.sampled_from(["x", "yz"])))
def test_a_subset_is_a_full_match(words, more):
    assert token_set_ratio(" ".join(words), " ".join(words | more)) == 100


@given(st.lists(st.text("ab", min_size=1, max_size=6), min_size=2, max_size=2))
def test_single_words_are_compared_by_their_common_subsequence(words):
    one, other = words
    table = [[0] * (len(other) + 1) for _ in range(len(one) + 1)]
    for i, a in enumerate(one):
        for j, b in enumerate(other):
            table[i + 1][j + 1] = table[i][j] + 1 if a == b else max(table[i][j + 1], table[i + 1][j])
    assert token_set_ratio(one, other) == round(200 * table[-1][-1] / (len(one) + len(other)))
