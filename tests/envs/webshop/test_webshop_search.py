"""The search: hand-computed scores, Lucene's own lists, the published environment's pages, laws."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.webshop.analysis import terms
from envs.webshop.catalogue import Catalogue
from envs.webshop.product_search import K1, B, IndexBuilder, code_length, length_code

LUCENE = json.loads((Path(__file__).parents[2] / "fixtures" / "webshop" / "lucene.json").read_text())


def build(documents):
    """An index of [(id, text), …], and a function from a query to ids and one to {id: score}."""
    builder = IndexBuilder()
    for name, text in documents:
        builder.add(name, text)
    index = builder.build()
    names = [name for name, _ in documents]

    def find(query, k=50):
        return [names[number] for number in index.search(query, k)]

    def scores(query):
        return dict(zip(sorted(names), index.scores(query).tolist(), strict=True))

    return index, find, scores


@pytest.fixture(scope="module")
def lucene():
    return build(LUCENE["documents"])


# --- values ------------------------------------------------------------------------------------------------


def test_scores_by_hand():
    """Three documents of 2, 3 and 4 terms: avgdl = 3, N = 3."""
    _, find, scores = build([("A", "red dress"), ("B", "red red lamp"), ("C", "blue oak lamp table")])
    # dress: df = 1, idf = ln(1 + 2.5/1.5) = 0.980829; tf 1 over 0.9·(0.6 + 0.4·2/3) = 0.78 → 1/1.78.
    # red:   df = 2, idf = ln(1 + 1.5/2.5) = 0.470004; in A 1/1.78; in B tf 2, 0.9·(0.6 + 0.4) = 0.9 → 2/2.9.
    assert scores("dress")["A"] == pytest.approx(0.980829 / 1.78, rel=1e-5)
    assert scores("red")["B"] == pytest.approx(0.470004 * 2 / 2.9, rel=1e-5)
    found = scores("red dress")
    assert found["A"] == pytest.approx((0.980829 + 0.470004) / 1.78, rel=1e-5)
    assert found["C"] == 0
    # A term said twice in the query weighs twice.
    assert scores("red red dress")["B"] == pytest.approx(2 * 0.470004 * 2 / 2.9, rel=1e-5)
    assert find("red dress") == ["A", "B"]
    assert find("RED!") == ["B", "A"]


def test_length_codes():
    # Exact below 40 (24 free codes, then four binary digits: 24 + 15 is the last exact one), then coarser.
    assert [code_length(length_code(n)) for n in range(41)] == list(range(41))
    assert [code_length(length_code(n)) for n in (41, 42, 55, 56, 59, 60, 88, 104)] == [
        40, 42, 54, 56, 56, 60, 88, 104,
    ]  # fmt: skip
    codes = [length_code(n) for n in range(5000)]
    assert codes == sorted(codes)
    assert max(codes) < 256
    for code in range(256):
        assert length_code(code_length(code)) == code
    assert all(code_length(code) <= n for n, code in enumerate(codes))


def test_equal_scores_are_ordered_by_id_whatever_the_order_of_loading():
    same = [(name, "same words") for name in ("b", "Z", "a", "é", "10", "9")]
    for documents in (same, same[::-1]):
        assert build(documents)[1]("words") == ["10", "9", "Z", "a", "b", "é"]


@pytest.mark.parametrize("case", LUCENE["searches"], ids=lambda case: case["query"][:30])
def test_lists_and_scores_are_lucenes(lucene, case):
    _, find, scores = lucene
    assert find(case["query"]) == case["found"]
    found = scores(case["query"])
    got = [found[name] for name in case["found"][:5]]
    assert got == pytest.approx(case["scores"], abs=1.5e-4)  # rounded there, and equal ones stepped


def test_nothing_found():
    _, find, _ = build([("A", "red"), ("B", "")])
    assert find("") == find("the of") == find("blue") == find("red", 0) == []
    assert build([("A", ""), ("B", "!")])[1]("red") == []


# --- the published environment's result pages --------------------------------------------------------------


def result_pages(transcripts):
    """Yields (query, page, ids) of every page of results; special queries are no searches."""
    for walk in transcripts:
        query = None
        for step in walk["steps"]:
            action = re.match(r"search\[(.+)\]", step["action"] or "")
            query = action[1].lower() if action else query
            text = step.get("obs", {}).get("text", "")
            page = re.search(r"\[SEP\] Page (\d+) \(Total results: (\d+)\) \[SEP\]", text)
            if page and not query.startswith("<"):
                ids = [
                    part
                    for part in text[page.end() :].split(" [SEP] ")
                    if re.fullmatch("B0[A-Z0-9]{8}", part)
                ]
                yield query, int(page[1]), int(page[2]), ids


def test_result_pages_of_the_published_environment(shared):
    golden = shared / "golden" / "webshop"
    files = [
        golden / "catalogue" / f"{name}.json" for name in ("items_shuffle", "items_ins", "items_human_ins")
    ]
    catalogue = Catalogue.from_files(*files)
    assert len(catalogue) == 300
    transcripts = json.loads((golden / "golden_transcripts.json").read_text())["transcripts"]
    pages = list(result_pages(transcripts))
    assert len(pages) > 40
    for query, page, total, ids in pages:
        found = catalogue.search(query.split(" "))
        assert len(found) == total
        if page > 0:
            assert found[10 * page - 10 : 10 * page] == ids


def test_the_published_products_make_the_measured_number_of_postings(shared):
    data = shared / "data" / "webshop"
    catalogue = Catalogue.from_files(
        data / "items_shuffle_1000.json.gz",
        data / "items_ins_v2_1000.json.gz",
        data / "items_human_ins.json.gz",
    )
    assert len(catalogue) == 1000
    assert len(catalogue._index.documents) == pytest.approx(68_500, abs=50)  # 68.5 a product


# --- laws --------------------------------------------------------------------------------------------------

TEXT = st.lists(
    st.sampled_from(("red", "blue", "oak", "lamp", "lamps", "table", "dress", "silk")), max_size=60
).map(" ".join)
DOCUMENTS = st.lists(TEXT, min_size=1, max_size=12).map(
    lambda texts: [(f"D{i:02}", t) for i, t in enumerate(texts)]
)


SOME = [("A", "red café ★"), ("B", "日本 lamp"), ("C", "\ud800 x")]


def plain_scores(documents, query):
    """The formula as the textbook has it, in float64, with lengths rounded."""
    split = {name: terms(text) for name, text in documents}
    filled = [found for found in split.values() if found]
    mean = sum(map(len, filled)) / max(1, len(filled))
    total = dict.fromkeys(split, 0.0)
    for term, times in Counter(terms(query)).items():
        df = sum(term in found for found in filled)
        idf = math.log(1 + (len(filled) - df + 0.5) / (df + 0.5))
        for name, found in split.items():
            if tf := found.count(term):
                length = code_length(length_code(len(found)))
                total[name] += times * idf * tf / (tf + K1 * (1 - B + B * length / mean))
    return total


@settings(deadline=None)
@given(DOCUMENTS, TEXT)
def test_scores_are_those_of_the_formula(documents, query):
    assert build(documents)[2](query) == pytest.approx(plain_scores(documents, query), rel=1e-5)


@settings(deadline=None)
@given(DOCUMENTS, TEXT, st.randoms(use_true_random=False), st.integers(0, 15))
def test_order_laws(documents, query, rng, k):
    index, find, scores = build(documents)
    found = scores(query)
    everything = find(query)
    assert everything == sorted((n for n in found if found[n] > 0), key=lambda name: (-found[name], name))
    assert find(query, k) == everything[:k]
    shuffled = list(documents)
    rng.shuffle(shuffled)
    assert build(shuffled)[1](query) == everything
    for start, stop in pairwise(index.starts):
        assert (np.diff(index.documents[start:stop]) > 0).all()


@settings(deadline=None)
@given(st.lists(st.text(alphabet=st.characters(), max_size=30), max_size=5), st.integers(-2, 99))
def test_any_words_can_be_searched_for(words, k):
    _, find, _ = build(SOME)
    assert len(find(" ".join(words), k)) <= max(0, min(k, len(SOME)))


def test_the_order_of_a_querys_words_changes_nothing():
    _, find, scores = build(LUCENE["documents"])
    for case in LUCENE["searches"]:
        backwards = " ".join(reversed(case["query"].split()))
        if "-" not in backwards:
            assert scores(backwards) == scores(case["query"])
