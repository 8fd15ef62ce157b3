"""SCPO: the allocation, what takes part in it, which success it looks at, and what it reports."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from credit.parts.matching import ORDERS, visiting_order
from credit.pipeline import Pipeline
from credit.scorer import make_scorer
from credit.stages.scpo import SCPO, allocate
from credit.table import StepTable


class Exact:
    """1 for equal texts, else 0.7, and remembers what it was asked."""

    def __init__(self):
        self.asked = []

    def score(self, pairs):
        self.asked += list(pairs)
        return np.array([1.0 if a == b else 0.7 for a, b in pairs])


def run(table, scorer=None, seed=0, **options):
    options = {"step_text": "{observation} {action}"} | options
    method = Pipeline.from_config({"returns": {"gamma": 1.0}, "scpo": options, "gigpo": {"norm": "mean"}})
    return method.run(table, {"pair_scorer": scorer or make_scorer("lexical")}, seed=seed)


def attempt(success, text, group=0, valid=None):
    """A trajectory whose steps are the words 'place:action' of a text; a success earns 10 at its end."""
    words = [word.split(":") for word in text.split()]
    return {
        "group": group,
        "success": success,
        "steps": [
            [place, action, 10 * (success and i == len(words) - 1), valid[i] if valid else 1]
            for i, (place, action) in enumerate(words)
        ],
    }


M = np.array(
    # failed step:  0    1    2    3
    [
        [0.9, 0.2, 0.7, 0.7],
        [0.3, 0.8, 0.6, 0.1],
        [0.7, 0.1, 1.0, 0.6],
    ]
)


@pytest.mark.parametrize(
    ("order", "monotone", "pick", "want"),
    [
        ("chronological", "running_max", "argmax", [0, 1, 2, -1]),
        ("chronological", "none", "argmax", [0, 1, 2, 0]),
        ("chronological", "none", "earliest", [0, 1, 0, 0]),
        # step 3 takes 0 (0.7), step 2 takes 2 (1.0), nothing lies beyond 2
        ("reverse", "running_max", "argmax", [-1, -1, 2, 0]),
        # step 3 takes 0, step 2 takes 1 (0.6), step 1 finds nothing beyond, step 0 takes 2 (0.7)
        ("reverse", "running_max", "earliest", [2, -1, 1, 0]),
        ("reverse", "chain", "argmax", [-1, -1, -1, 0]),
        ("similarity_desc", "running_max", "argmax", [-1, -1, 2, -1]),
        ("similarity_desc", "chain", "argmax", [0, 1, 2, -1]),
        ("midpoint_interleave", "chain", "earliest", [-1, -1, 0, 2]),
    ],
)
def test_allocation_by_hand(order, monotone, pick, want):
    position, credit = allocate(M, 0.6, 0.5, order=order, monotone=monotone, pick=pick)
    assert position.tolist() == want
    expected = [2 * max(0.0, M[j, v] - 0.5) if j >= 0 else 0.0 for v, j in enumerate(want)]
    np.testing.assert_allclose(credit, expected, atol=1e-12)


def test_orders():
    assert visiting_order(M, "chronological").tolist() == [0, 1, 2, 3]
    assert visiting_order(M, "reverse").tolist() == [3, 2, 1, 0]
    assert visiting_order(M, "similarity_desc").tolist() == [2, 0, 1, 3]
    assert visiting_order(M[:, :3], "midpoint_interleave").tolist() == [1, 0, 2]
    assert sorted(visiting_order(M, "random", np.random.default_rng(0)).tolist()) == [0, 1, 2, 3]


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0)])
@pytest.mark.parametrize("order", ORDERS)
def test_nothing_to_allocate(shape, order):
    position, credit = allocate(np.zeros(shape), 0.6, 0.5, order=order, rng=np.random.default_rng(0))
    assert position.tolist() == [-1] * shape[1] and not credit.any()


matrices = st.tuples(st.integers(1, 6), st.integers(1, 6), st.integers(0, 2**20)).map(
    lambda s: np.random.default_rng(s[2]).random(s[:2]).round(2)
)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    similarity=matrices,
    theta=st.floats(0, 1),
    order=st.sampled_from(ORDERS),
    monotone=st.sampled_from(["running_max", "chain", "none"]),
    pick=st.sampled_from(["argmax", "earliest"]),
)
def test_what_every_allocation_keeps(similarity, theta, order, monotone, pick):
    position, credit = allocate(
        similarity, theta, 0.5, order=order, monotone=monotone, pick=pick, rng=np.random.default_rng(0)
    )
    hit = np.flatnonzero(position >= 0)
    assert (similarity[position[hit], hit] >= theta).all()
    assert ((credit >= 0) & (credit <= 1)).all() and not credit[position < 0].any()
    if monotone != "none":
        assert len(set(position[hit].tolist())) == len(hit)
    if monotone == "chain" or (monotone == "running_max" and order == "chronological"):
        assert (np.diff(position[hit]) > 0).all()


def test_credit_comes_after_discounting_and_does_not_reach_back(build):
    table = build([attempt(True, "a:x b:y c:z"), attempt(False, "d:q e:q c:z")])
    method = Pipeline.from_config({"returns": {"gamma": 0.5}, "scpo": {"theta": 0.9}, "gigpo": {}})
    result = method.run(table, {"pair_scorer": make_scorer("lexical")})
    assert result.returns.tolist() == [2.5, 5.0, 10.0, 0.0, 0.0, 0.5]
    # the outcome term does not see it
    assert result.columns["gigpo.episode"][:3].tolist() == (-result.columns["gigpo.episode"][3:]).tolist()


def test_successes_are_never_credited_and_groups_never_mixed(build):
    table = build(
        [
            attempt(True, "a:x b:y"),
            attempt(True, "a:x b:y c:z"),
            attempt(False, "b:y a:x", group=1),
            attempt(False, "a:x", group=1),
        ]
    )
    result = run(table)
    assert not result.columns["scpo.credit"].any()
    assert result.metrics["credit/scpo/groups_without_success"] == 0.5
    assert result.metrics["credit/scpo/scored_pairs"] == 0


@pytest.mark.parametrize(
    ("select", "sibling"), [("longest", 1), ("shortest", 0), ("best_similarity", 2), ("random", None)]
)
def test_reference(build, select, sibling):
    table = build(
        [
            attempt(True, "a:x"),
            attempt(True, "a:x b:y c:z k:k"),
            attempt(True, "a:x q:q r:r"),
            attempt(False, "a:x q:q r:r"),
        ]
    )
    result = run(table, ref_select=select)
    chosen = set(result.columns["scpo.sibling"][8:].tolist()) - {-1}
    assert len(chosen) == 1 and chosen <= ({sibling} if sibling is not None else {0, 1, 2})
    assert result.metrics["credit/scpo/reference_length"] == {0: 1, 1: 4, 2: 3}[chosen.pop()]


def test_random_choices_depend_on_the_seed_alone(build):
    table = build([attempt(True, f"a:x p{i}:y") for i in range(8)] + [attempt(False, "a:x")])
    drawn = [run(table, seed=seed, ref_select="random").columns["scpo.sibling"][-1] for seed in range(12)]
    again = [run(table, seed=seed, ref_select="random").columns["scpo.sibling"][-1] for seed in range(12)]
    assert drawn == again and len(set(drawn)) > 2


def nothing(place):
    return [place, "go", 0, 1]


@pytest.mark.parametrize(
    ("option", "want"),
    [
        # steps: Hm. | Hm. (invalid) | Hm. | Hm. Nothing happens. | the same again | Hm.
        ("none", [0, 1, 2, 3, 4, 5]),
        ("invalid", [0, 2, 3, 4, 5]),
        ("invalid+noop", [0, 2, 3, 5]),
        ("dedup_exact", [0, 1, 3]),
    ],
)
def test_filter(build, option, want):
    noop = "Nothing happens."
    failed = [
        ["Hm.", "a", 0, 1],
        ["Hm.", "b", 0, 0],
        ["Hm.", "a", 0, 1],
        [noop, "a", 0, 1],
        [noop, "a", 0, 1],
        ["Hm.", "a", 0, 1],
    ]
    table = build([{"success": True, "steps": [["Ho.", "c", 10, 1]]}, {"success": False, "steps": failed}])
    result = run(table, Exact(), filter=option, theta=0.0, lam=0.0, monotone="none")
    assert np.flatnonzero(result.columns["scpo.sibling_t"][1:] >= 0).tolist() == want


def test_filter_of_any_repeated_observation(build):
    table = build(
        [
            attempt(True, "a:x"),
            {"success": False, "steps": [nothing("b"), nothing("b"), nothing("c"), nothing("b")]},
        ]
    )
    result = run(table, Exact(), noop_text="", theta=0.0, monotone="none")
    assert (result.columns["scpo.sibling"][1:] >= 0).tolist() == [True, False, True, True]


def test_a_reference_without_any_kept_step_credits_nothing(build):
    table = build([attempt(True, "a:x", valid=[0]), attempt(False, "a:x")])
    assert not run(table, ref_select="best_similarity").columns["scpo.credit"].any()


def test_equal_texts_are_scored_once_reference_first(build):
    scorer = Exact()
    table = build([attempt(True, "a:x a:x b:y"), attempt(False, "c:x c:x a:x")])
    result = run(table, scorer)
    assert sorted(scorer.asked) == [("a x", "a x"), ("a x", "c x"), ("b y", "a x"), ("b y", "c x")]
    assert result.metrics["credit/scpo/scored_pairs"] == 9
    assert result.metrics["credit/scpo/unique_pairs"] == 4


def test_symmetrize_takes_the_mean_of_both_ways(build):
    class OneWay:
        def score(self, pairs):
            return np.array([1.0 if a < b else 0.5 for a, b in pairs])

    table = build([attempt(True, "a:x"), attempt(False, "b:x")])
    assert run(table, OneWay()).columns["scpo.similarity"][1] == 1.0
    assert run(table, OneWay(), symmetrize=True).columns["scpo.similarity"][1] == 0.75


def test_long_observations_lose_their_beginning(build):
    scorer = Exact()
    long = " ".join(f"w{i}" for i in range(20))
    table = build(
        [
            {"success": True, "steps": [[long, "take cup", 10, 1]]},
            {"success": False, "steps": [["b", "x " * 9, 0, 1]]},
        ]
    )
    run(table, scorer, max_pair_len=10)
    assert scorer.asked == [("w17 w18 w19 take cup", "x x x x x")]


def test_metrics(build):
    table = build([attempt(True, "a:x b:y"), attempt(False, "a:x q:y z:z z:z")])
    metrics = run(table, theta=0.5, order="chronological").metrics
    # a:x matches exactly and shares its anchor; q:y matches b:y by one half and is alone
    assert metrics["credit/scpo/credited_fraction"] == 0.5
    assert metrics["credit/scpo/credit_mean"] == 0.5
    assert metrics["credit/scpo/credited_in_singletons"] == 0.5
    assert metrics["credit/scpo/reference_length"] == 2


@pytest.mark.parametrize(
    ("values", "message"),
    [([1.5], r"within \[0, 1\]"), ([np.nan], r"within \[0, 1\]"), ([0.5, 0.5], "shape")],
)
def test_a_scorer_out_of_range_is_refused(build, values, message):
    class Broken:
        def score(self, pairs):
            return np.array(values)

    with pytest.raises(ValueError, match=message):
        run(build([attempt(True, "a:x"), attempt(False, "b:x")]), Broken())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lam": 1.0}, "lam: got 1.0, expected < 1"),
        ({"theta": 1.2}, "theta: got 1.2, expected within"),
        ({"step_text": "{thought}"}, "unknown field {thought}"),
        ({"order": "similarity"}, "did you mean 'similarity_desc'"),
    ],
)
def test_parameters_are_checked(options, message):
    with pytest.raises(ValueError, match=message):
        SCPO(**options)


def test_it_asks_for_returns():
    table = StepTable(
        group=[0], trajectory=[0], t=[0], reward=[0.0], outcome=[0.0], success=[False], anchor=["a"]
    )
    with pytest.raises(ValueError, match="credit.scpo: some rows have no return; put a `returns` stage"):
        Pipeline.from_config({"scpo": {}, "gigpo": {}}).run(table, {"pair_scorer": Exact()})
