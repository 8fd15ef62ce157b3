"""Pair scorers without a model, and the wrappers around those with one."""

import difflib
import multiprocessing
import sqlite3
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from credit.scorer import UniquePairs, around_model, make_scorer, scorer_names
from credit.scorer.around import batches
from tests.credit.fake_model import FakeModel

texts = st.lists(
    st.sampled_from(["You", "arrive", "at", "shelf", "1", "2", "cup", "nothing"]), max_size=8
).map(" ".join)
FAST = settings(max_examples=50, deadline=None, derandomize=True)


@FAST
@given(pairs=st.lists(st.tuples(texts, texts), max_size=8))
def test_lexical_is_the_word_ratio_whatever_the_batch(pairs):
    got = make_scorer("lexical").score(pairs)
    want = [difflib.SequenceMatcher(None, a.lower().split(), b.lower().split()).ratio() for a, b in pairs]
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-12)
    assert got.shape == (len(pairs),) and ((got >= 0) & (got <= 1)).all()


@FAST
@given(first=texts, second=texts, change=st.sampled_from([str, str.upper, " {} ".format]))
def test_lexical_is_one_exactly_for_one_canonical_form(first, second, change):
    lexical = make_scorer("lexical").scorer
    for a, b in [(first, second), (first, change(first))]:
        assert (lexical.score([(a, b)])[0] == 1.0) == (lexical.canonical(a) == lexical.canonical(b))


def test_lexical_by_hand():
    pairs = [("go to shelf 1", "go to shelf 2"), ("Go", "go"), ("a", "b"), ("", "a"), ("", " ")]
    assert make_scorer("lexical").score(pairs).tolist() == [0.75, 1.0, 0.0, 0.0, 1.0]


class Counting:
    canonical = None

    def __init__(self, score=0.5):
        self.calls = []
        self.value = score

    def score(self, pairs):
        self.calls.append(list(pairs))
        return np.full(len(pairs), self.value)


class CountingByDefinition(Counting):
    @staticmethod
    def canonical(text):
        return text


def test_each_distinct_pair_is_asked_once_and_identical_texts_never():
    scorer = CountingByDefinition()
    unique = UniquePairs(scorer)
    assert unique.score([("a", "b"), ("a", "a"), ("a", "b"), ("b", "a")]).tolist() == [0.5, 1.0, 0.5, 0.5]
    assert unique.score([("a", "b"), ("c", "b")]).tolist() == [0.5, 0.5]
    assert unique.score([]).shape == (0,)
    assert scorer.calls == [[("a", "b"), ("b", "a")], [("c", "b")]]


def test_identical_texts_are_asked_where_the_scorer_does_not_define_them():
    scorer = Counting()
    assert UniquePairs(scorer).score([("a", "a"), ("a", "b"), ("a", "a")]).tolist() == [0.5] * 3
    assert scorer.calls == [[("a", "a"), ("a", "b")]]


def test_texts_that_differ_stay_below_one_where_equal_ones_are_one():
    assert UniquePairs(CountingByDefinition(1.0)).score([("a", "b")])[0] == np.nextafter(1.0, 0.0)
    assert UniquePairs(Counting(1.0)).score([("a", "b")])[0] == 1.0


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
    assert scorer_names() == ["bge", "embed", "lexical"]
    with pytest.raises(ValueError, match="no scorer 'lexicl'; did you mean 'lexical'"):
        make_scorer("lexicl")
    with pytest.raises(ValueError, match="credit.scorer.lexical: no option 'device'"):
        make_scorer("lexical", device="cpu")
    with pytest.raises(ValueError, match="credit.scorer.lexical: no option 'cache'"):
        make_scorer("lexical", cache="scores.sqlite")
    with pytest.raises(ValueError, match="credit.scorer.bge: no option 'max_pair'; did you mean 'max_pairs'"):
        make_scorer("bge", max_pair=3)


def test_no_scorer_file_imports_a_deep_learning_library():
    code = (
        "import sys, credit.scorer.bge, credit.scorer.embed\n"
        "assert not {'torch', 'transformers', 'FlagEmbedding'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@FAST
@given(lengths=st.lists(st.integers(1, 60), max_size=40), budget=st.integers(1, 300))
def test_batches_hold_each_item_once_within_the_budget(lengths, budget):
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    cut = list(batches(np.array(lengths), order, budget))
    assert [i for batch in cut for i in batch] == order
    for batch in cut:
        longest = max(lengths[i] for i in batch)
        assert len(batch) == 1 or len(batch) * longest <= budget
        assert 16 * sum(longest - lengths[i] for i in batch) <= budget


PAIRS = [(a, b) for a in ("a", "b b", "c c c", "d " * 9) for b in ("x", "y y", "a")]


def test_batches_change_no_score_and_do_not_depend_on_the_order_of_pairs():
    one, other = FakeModel(), FakeModel()
    straight = around_model(one, token_budget=30).score(PAIRS)
    mixed = around_model(other, token_budget=30).score(PAIRS[::-1])
    assert straight.tolist() == [FakeModel.value(*pair) for pair in PAIRS] == mixed[::-1].tolist()
    assert one.calls == other.calls and len(one.calls) > 1
    assert one.tokens_read == sum(one.lengths(PAIRS))


def test_a_model_that_overflows_is_refused():
    class Overflowing(FakeModel):
        def score(self, pairs):
            return super().score(pairs) * np.nan

    with pytest.raises(ValueError, match=r"fake: scores from nan to nan, expected \[0, 1\]"):
        around_model(Overflowing()).score(PAIRS)
    with pytest.raises(ValueError, match="token_budget: got 0"):
        around_model(FakeModel(), token_budget=0)


def test_the_budget_is_kept_reported_and_forgotten_with_the_update():
    model = FakeModel()
    scorer = around_model(model, max_pairs=5)
    first = scorer.score(PAIRS)
    asked = {pair for call in model.calls for pair in call}
    assert len(asked) == 5 and scorer.account.budget_pairs == len(PAIRS) - 5
    assert first.tolist() == [FakeModel.value(*pair) if pair in asked else 0.0 for pair in PAIRS]
    assert scorer.account.budget == sum(model.lengths([pair for pair in PAIRS if pair not in asked]))
    assert scorer.score([("new", "pair")]).tolist() == [0.0]
    # which pairs are left out depends on their texts alone
    assert around_model(FakeModel(), max_pairs=5).score(PAIRS[::-1])[::-1].tolist() == first.tolist()
    # what was left out is not taken for a score later
    scorer.account.clear()
    missing = [pair for pair in PAIRS if pair not in asked]
    assert np.count_nonzero(scorer.score(missing)) == 5
    with pytest.raises(ValueError, match="max_pairs: got -1"):
        around_model(FakeModel(), max_pairs=-1)


def test_the_file_gives_the_same_bits_without_asking(tmp_path):
    path = tmp_path / "new folder" / "scores.sqlite"
    want = around_model(FakeModel(), cache=str(path)).score(PAIRS)
    model = FakeModel()
    scorer = around_model(model, cache=str(path))
    assert scorer.score(PAIRS).tolist() == want.tolist() and not model.calls
    assert scorer.account.cache == sum(model.lengths(PAIRS)) and not scorer.account.scored
    # nothing of it is another model's, another order's, or of texts that merely join to the same
    other = FakeModel("another")
    around_model(other, cache=str(path)).score(PAIRS)
    assert sum(map(len, other.calls)) == len(PAIRS)
    around_model(model, cache=str(path)).score([("x", "a"), ("b", " bx")])
    assert sum(map(len, model.calls)) == 2


def test_the_budget_keeps_nothing_in_the_file(tmp_path):
    path = str(tmp_path / "scores.sqlite")
    around_model(FakeModel(), cache=path, max_pairs=5).score(PAIRS)
    got = around_model(FakeModel(), cache=path).score(PAIRS)
    assert got.tolist() == [FakeModel.value(*pair) for pair in PAIRS]


def corrupt(path, change):
    around_model(FakeModel(), cache=str(path)).score([(f"{i}", "b") for i in range(3000)])
    change(path)


def cut(path):
    path.write_bytes(path.read_bytes()[:20000])


def scribble(path):
    content = bytearray(path.read_bytes())
    content[4096:30000] = b"\xa5" * (30000 - 4096)
    path.write_bytes(content)


def out_of_range(path):
    with sqlite3.connect(path) as file:
        file.execute("UPDATE scores SET score = 7.5")


@pytest.mark.parametrize("change", [lambda p: p.write_text("no database " * 99), cut, scribble, out_of_range])
def test_a_corrupt_file_is_named_and_refused(tmp_path, change):
    path = tmp_path / "scores.sqlite"
    corrupt(path, change)
    with pytest.raises(
        ValueError, match=r"scorer cache .*scores\.sqlite: corrupt \(.*\); delete it, or name"
    ):
        around_model(FakeModel(), cache=str(path)).score([("1", "b")])


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "other.sqlite"
    with sqlite3.connect(path) as file:
        file.execute("CREATE TABLE something (a)")
    with pytest.raises(ValueError, match=r"other\.sqlite: a database of something else"):
        around_model(FakeModel(), cache=str(path))
    with pytest.raises(ValueError, match="scorer cache .*: unable to open"):
        around_model(FakeModel(), cache=str(tmp_path))
    with pytest.raises(ValueError, match="its folder cannot be made"):
        around_model(FakeModel(), cache=str(path / "below.sqlite"))


def _work(path, start, barrier, results):
    pairs = [(f"text {(start + i) % 60}", "b") for i in range(60)]
    barrier.wait(60)
    for first in range(0, 60, 6):
        some = pairs[first : first + 6]
        got = around_model(FakeModel(), cache=path).score(some)
        results.put(got.tolist() == [FakeModel.value(*pair) for pair in some])


def test_several_processes_share_a_file(tmp_path):
    path, context = str(tmp_path / "scores.sqlite"), multiprocessing.get_context("fork")
    barrier, results = context.Barrier(3), context.Queue()
    workers = [
        context.Process(target=_work, args=(path, 20 * k, barrier, results), daemon=True) for k in range(3)
    ]
    for worker in workers:
        worker.start()
    assert all(results.get(timeout=120) for _ in range(30))
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    with sqlite3.connect(path) as file:
        assert file.execute("SELECT count(*) FROM scores").fetchone() == (60,)
        assert file.execute("PRAGMA integrity_check").fetchone() == ("ok",)
