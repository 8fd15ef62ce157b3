"""What is not scored changes no credit: matching on demand compared with the plain rule, `allocate`."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from credit.parts.matching import ORDERS, Layout, Matching, Rule
from credit.scorer import around_model
from credit.signals import Context, Signals
from credit.stages.scpo import SCPO, allocate, recovered
from tests.credit.conftest import table_from
from tests.credit.fake_model import FakeModel

FAST = settings(max_examples=60, deadline=None, derandomize=True)
MONOTONE = ["running_max", "chain", "none"]
PICKS = ["argmax", "earliest"]
BEST_FIRST = Rule(0.6, "similarity_desc", "running_max", "argmax")


class OnDemand:
    """Similarities that appear when fetched; those of 1 are known beforehand if `told`."""

    def __init__(self, matrices, told):
        self.all = np.concatenate([M.T.ravel() for M in matrices])
        self.ones = (self.all == 1.0) & told
        self.values = np.where(self.ones, 1.0, np.nan)
        self.fetches = 0

    def read(self, entries):
        return self.values[entries]

    def identical(self, entries):
        return self.ones[entries]

    def fetch(self, entries):
        self.fetches += bool(np.isnan(self.values[entries]).any())
        self.values[entries] = self.all[entries]


def lazily(matrices, rule, told=True):
    """Positions for each matrix, and the share of entries fetched."""
    sizes = np.array([M.shape for M in matrices])
    scores = OnDemand(matrices, told)
    position = Matching(Layout(sizes[:, 0], sizes[:, 1]), scores, rule).run(
        np.arange(len(matrices)), lambda k: np.random.default_rng(k)
    )
    rows = [row[:n].tolist() for row, n in zip(position, sizes[:, 1], strict=True)]
    return rows, int((~np.isnan(scores.values) & ~scores.ones).sum()), scores.fetches


def plainly(M, k, rule, lam=0.5):
    """Positions and r of one matrix by `allocate`, with the random numbers that `lazily` gives matrix k."""
    options = {"order": rule.order, "monotone": rule.monotone, "pick": rule.pick}
    position, r = allocate(M, rule.theta, lam, rng=np.random.default_rng(k), **options)
    return position.tolist(), r.tolist()


# values from a short list, so that ties, ones and exact thresholds are frequent
matrices = st.lists(
    st.tuples(st.integers(0, 6), st.integers(0, 6), st.integers(0, 2**20)).map(
        lambda s: np.random.default_rng(s[2]).choice([0.1, 0.5, 0.6, 0.7, 0.9, 1.0], s[:2])
    ),
    min_size=1,
    max_size=4,
)


@pytest.mark.parametrize("pick", PICKS)
@pytest.mark.parametrize("monotone", MONOTONE)
@pytest.mark.parametrize("order", ORDERS)
@FAST
@given(
    matrices=matrices,
    theta=st.sampled_from([0.0, 0.5, 0.6, 0.95, 1.0]),
    lam=st.sampled_from([0.0, 0.5, 0.65]),
    told=st.booleans(),
)
def test_lazy_matching_is_the_plain_rule(matrices, order, monotone, pick, theta, lam, told):
    got, _, _ = lazily(matrices, Rule(theta, order, monotone, pick), told)
    for k, M in enumerate(matrices):
        position, r = plainly(M, k, Rule(theta, order, monotone, pick), lam)
        assert got[k] == position
        assert [recovered(M[j, v], lam) if j >= 0 else 0.0 for v, j in enumerate(position)] == r


# failed step:  0    1    2    3
M = np.array(
    [
        [0.9, 0.2, 1.0, 0.7],
        [0.3, 0.8, 0.6, 0.1],
        [0.7, 0.1, 0.9, 0.6],
    ]
)


@pytest.mark.parametrize(
    ("options", "fetched", "rounds"),
    [
        # step 0 asks for three and takes position 0, step 1 for two and takes 1, step 2 for one and takes 2
        ({"order": "chronological"}, 6, 3),
        # step 3 asks for all and takes 0, step 2 for two and takes 2, nothing is left
        ({"order": "reverse"}, 5, 2),
        # step 2 is known to be best and takes 0; the others ask beyond it: 0.7, 0.8 and 0.6 pass, so their
        # maxima are wanted too, and all is known but the other two of step 2
        ({"order": "similarity_desc"}, 9, 2),
        # … at a threshold where only step 1 passes beyond position 0, no maximum is wanted
        ({"order": "similarity_desc", "theta": 0.75}, 6, 1),
        # any position may be used again: step 2 has the best there is
        ({"monotone": "none"}, 9, 1),
        ({"monotone": "none", "order": "chronological"}, 9, 3),
        # the earliest of step 2 is position 0
        ({"monotone": "none", "order": "chronological", "pick": "earliest"}, 9, 3),
    ],
)
def test_what_is_fetched_by_hand(options, fetched, rounds):
    rule = replace(BEST_FIRST, **options)
    assert lazily([M], rule)[1:] == (fetched, rounds)
    assert lazily([M], rule)[0] == [plainly(M, 0, rule)[0]]


def test_best_first_needs_everything_where_nothing_is_known_beforehand():
    assert lazily([M], BEST_FIRST, told=False)[1:] == (12, 1)


attempts = st.lists(
    st.tuples(
        st.integers(0, 1),
        st.booleans(),
        st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from(["x", "y"])), min_size=1, max_size=6),
    ),
    min_size=2,
    max_size=7,
)
options = st.fixed_dictionaries(
    {
        "order": st.sampled_from(ORDERS),
        "monotone": st.sampled_from(MONOTONE),
        "pick": st.sampled_from(PICKS),
        "ref_select": st.sampled_from(["longest", "shortest", "random", "best_similarity"]),
        "filter": st.sampled_from(["none", "dedup_exact"]),
        "symmetrize": st.booleans(),
        "theta": st.sampled_from([0.0, 0.4, 0.7]),
    }
)


def shape(stage, attempts, scorer):
    table = table_from(
        [
            {
                "group": g,
                "success": won,
                "steps": [[o, a, 10 * (won and i == 0), 1] for i, (o, a) in enumerate(s)],
            }
            for g, won, s in sorted(attempts, key=lambda attempt: attempt[0])
        ]
    )
    nothing = np.zeros(len(table))
    return stage.shape(table, Signals(nothing, nothing, nothing), Context({"pair_scorer": scorer}))


class Untold:
    """A scorer's numbers, equal texts included, without its promise about equal texts."""

    def __init__(self, scorer):
        self.scorer = scorer

    def score(self, pairs):
        return self.scorer.score(pairs)


@FAST
@given(attempts=attempts, options=options)
def test_credit_is_the_same_with_and_without_what_spares_scoring(attempts, options):
    stage = SCPO(lam=0.3, **options)
    whole = shape(stage, attempts, Untold(around_model(FakeModel(one=True))))
    got = shape(stage, attempts, around_model(FakeModel(one=True), token_budget=20))
    assert got.returns.tolist() == whole.returns.tolist()
    for name, column in whole.columns.items():
        assert got.columns[name].tolist() == column.tolist()
    assert got.metrics["unique_pairs"] <= whole.metrics["unique_pairs"]


@FAST
@given(attempts=attempts, options=options, one=st.booleans(), budget=st.sampled_from([0, 3]))
def test_tokens_read_and_saved_make_up_those_of_scoring_each_pair(attempts, options, one, budget):
    stage = SCPO(**options)
    scorer = around_model(FakeModel(one=one), max_pairs=budget)
    for _ in range(2):  # the second time from memory
        metrics = shape(stage, attempts, scorer).metrics
        saved = sum(value for key, value in metrics.items() if key.startswith("tokens_saved"))
        assert metrics["tokens_naive"] == metrics["tokens_scored"] + saved
        # every text has four words
        assert metrics["tokens_naive"] == 12 * metrics["scored_pairs"] * (2 if stage.symmetrize else 1)
    assert budget or not metrics["tokens_scored"]
    assert (metrics["pairs_over_budget"] > 0) == (metrics["tokens_saved_budget"] > 0)


def test_a_pair_over_the_budget_earns_nothing_and_is_counted(build):
    steps = [[f"o{i}", "go", 0, 1] for i in range(4)]
    table = build([{"success": True, "steps": [["s", "go", 10, 1]]}, {"success": False, "steps": steps}])
    nothing = np.zeros(5)
    stage, signals = SCPO(theta=0.05, monotone="none"), Signals(nothing, nothing, nothing)
    for update in range(2):
        scorer = around_model(FakeModel(), max_pairs=3)
        result = stage.shape(table, signals, Context({"pair_scorer": scorer}, step=update))
        assert result.metrics["pairs_over_budget"] == 1
        assert (result.columns["sibling"] >= 0).sum() == 3
