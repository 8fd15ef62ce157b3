"""How alike two short texts are, as the reward measures it: token-set ratio, 0 to 100.

The numbers are those of thefuzz 0.22 (`fuzz.token_set_ratio`), checked on fixed pairs in the tests.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

# thefuzz leaves out Latin-1's upper half only (it calls the rest ASCII), and lower-cases İ to one letter.
_TRANSLATION: dict[int, str | None] = dict.fromkeys(range(128, 256)) | {0x130: "i"}
_NOT_A_WORD = re.compile(r"[\W_]")


@lru_cache(maxsize=1 << 16)
def token_set_ratio(one: str, other: str) -> int:
    """Compares two texts as sets of words.

    With I the shared words, A and B the rest of either text (each joined by single spaces), the best of
    ratio(I, I A), ratio(I, I B) and ratio(I A, I B); ratio(s, t) is 2·LCS(s, t) / (|s| + |t|) in percent,
    rounded half to even. A text all of whose words are in the other scores 100; one without words scores 0.
    """
    first, second = _words(one), _words(other)
    if not first or not second:
        return 0
    shared = first & second
    if shared and (first <= second or second <= first):
        return 100
    left, right = " ".join(sorted(first - second)), " ".join(sorted(second - first))
    common = len(" ".join(shared))
    start = common + 1 if common else 0  # the shared words and the space after them
    total = 2 * start + len(left) + len(right)
    unlike = len(left) + len(right) - 2 * _common_subsequence(left, right)
    ratios = [_percent(unlike, total)]
    if common:
        ratios += [_percent(1 + len(rest), common + start + len(rest)) for rest in (left, right)]
    return round(max(ratios))


def _words(text: str) -> frozenset[str]:
    return frozenset(_NOT_A_WORD.sub(" ", text.translate(_TRANSLATION)).lower().split())


def _percent(unlike: int, total: int) -> float:
    return 100.0 - 100.0 * unlike / total


def _common_subsequence(one: Sequence[str], other: Sequence[str]) -> int:
    """Length of the longest common subsequence, by bit-parallel dynamic programming (Hyyrö 2004)."""
    places: dict[str, int] = {}
    for i, symbol in enumerate(one):
        places[symbol] = places.get(symbol, 0) | 1 << i
    full = (1 << len(one)) - 1
    row = full
    for symbol in other:
        hit = row & places.get(symbol, 0)
        row = ((row + hit) | (row - hit)) & full
    return len(one) - row.bit_count()
