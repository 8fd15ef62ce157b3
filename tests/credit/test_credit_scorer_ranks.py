"""A scorer's model on several ranks gives the scores of one."""

import numpy as np
import pytest

from credit.scorer import around_model, shared_model
from credit.scorer.over_ranks import SharedModel
from tests.agent.threads import on_ranks
from tests.credit.fake_model import FakeModel

PAIRS = [(" ".join(["a"] * (i % 7)), f"text {i}") for i in range(23)]


def scored(ranks, pairs=PAIRS, budget=40):
    """(scores or None, batches computed here, tokens accounted for on the first rank)"""
    model = FakeModel()
    scorer = around_model(SharedModel(model, ranks), token_budget=budget)
    shared = shared_model(scorer)
    if ranks.rank:
        shared.serve()
        return None, model.calls, 0
    scores = [scorer.score(pairs), scorer.score(pairs[:5])]
    shared.end()
    return scores, model.calls, scorer.account.scored


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_scores_and_accounts_are_those_of_one(size):
    alone = FakeModel()
    plain = around_model(alone, token_budget=40)
    expected = [plain.score(PAIRS), plain.score(PAIRS[:5])]
    found = on_ranks(size, scored)
    scores, _, tokens = found[0]
    for got, right in zip(scores, expected, strict=True):
        assert np.array_equal(got, right)
    assert tokens == plain.account.scored
    calls = [call for _, some, _ in found for call in some]
    assert sorted(calls) == sorted(alone.calls)  # every batch once, and whole
    counts = [len(some) for _, some, _ in found]
    assert len(alone.calls) > 5 and max(counts) - min(counts) <= 1


def test_nothing_to_score_ends_as_well():
    for scores, calls, _ in on_ranks(3, lambda ranks: scored(ranks, pairs=[])):
        assert not calls and (scores is None or [len(one) for one in scores] == [0, 0])


def test_a_scorer_without_a_model_is_not_shared():
    assert shared_model(around_model(FakeModel())) is None and shared_model(None) is None
