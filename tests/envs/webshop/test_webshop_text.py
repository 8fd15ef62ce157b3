"""Search terms: what Lucene made of the same texts, the rules' own examples, and any text whatever."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.webshop.analysis import LONGEST_WORD, STOP_WORDS, terms, words
from envs.webshop.porter import stem

LUCENE = json.loads((Path(__file__).parents[2] / "fixtures" / "webshop" / "lucene.json").read_text())

# Examples of the paper, rule by rule, carried through all steps by hand; the last block is the author's
# later changes.
STEMS = """
caresses caress  ponies poni  ties ti  caress caress  cats cat  feed feed  agreed agre  plastered plaster
bled bled  motoring motor  sing sing  conflated conflat  troubled troubl  sized size  hopping hop
tanned tan  falling fall  hissing hiss  fizzed fizz  failing fail  filing file  happy happi  sky sky
relational relat  conditional condit  rational ration  valenci valenc  digitizer digit  radicalli radic
differentli differ  vileli vile  analogousli analog  vietnamization vietnam  predication predic
operator oper  feudalism feudal  decisiveness decis  hopefulness hope  callousness callous
formaliti formal  sensitiviti sensit  sensibiliti sensibl  triplicate triplic  formative form
formalize formal  electriciti electr  electrical electr  hopeful hope  goodness good  revival reviv
allowance allow  inference infer  airliner airlin  adjustable adjust  defensible defens  irritant irrit
replacement replac  adjustment adjust  dependent depend  adoption adopt  communism commun
activate activ  homologous homolog  effective effect  bowdlerize bowdler  probate probat  rate rate
cease ceas  controll control  roll roll
as as  is is  possibly possibl  technology technolog
"""


@pytest.mark.parametrize("case", LUCENE["analysis"], ids=lambda case: ascii(case["text"])[:30])
def test_terms_are_lucenes(case):
    assert terms(case["text"]) == case["terms"]


def test_stems_of_the_papers_examples():
    pairs = STEMS.split()
    wrong = [
        (word, stem(word))
        for word, expected in zip(pairs[::2], pairs[1::2], strict=True)
        if stem(word) != expected
    ]
    assert not wrong


def test_there_are_33_stop_words_and_each_is_dropped():
    assert len(STOP_WORDS) == 33
    assert terms(" ".join(sorted(STOP_WORDS))) == []
    assert terms("THE The cats'S") == ["cat"]


def test_a_run_is_cut_at_the_longest_word():
    assert [len(word) for word in words("a" * (2 * LONGEST_WORD + 1))] == [LONGEST_WORD, LONGEST_WORD, 1]
    joined = "a" * (LONGEST_WORD - 1) + ".bc"  # the joiner may not be the last of a word
    assert list(words(joined)) == ["a" * (LONGEST_WORD - 1), "bc"]


@settings(deadline=None)
@given(st.text())
def test_words_are_pieces_of_the_text_in_order(text):
    rest = text
    for word in words(text):
        before, found, rest = rest.partition(word)
        assert found == word
    assert terms(text) == terms(f" {text}\n")


@settings(deadline=None)
@given(st.lists(st.from_regex(r"[a-z]{3,9}", fullmatch=True).filter(lambda w: w not in STOP_WORDS)))
def test_plain_words_are_found_whatever_stands_between_them(plain):
    expected = [stem(word) for word in plain]
    for gap in (" ", "-", " , ", "/", "!", "\t(\n"):
        assert terms(gap.join(plain)) == expected


@settings(deadline=None)
@given(st.text(alphabet="abcdeghilmnorstuvyz", min_size=1, max_size=15))
def test_a_stem_is_no_longer_than_its_word_and_begins_alike(word):
    found = stem(word)
    assert 1 <= len(found) <= len(word)
    assert found[:1] == word[:1]


@pytest.mark.parametrize(
    "text", ["_" * 300_000, "a_" * 150_000, "a." * 150_000, "'" * 300_000, "😀\u200d" * 90_000]
)
def test_no_text_takes_long(text):
    began = time.process_time()
    terms(text)
    assert time.process_time() - began < 5  # s; quadratic time would be minutes
