"""How alike two step texts are: `make_scorer(name)` builds the scorer in `credit/scorer/NAME.py`."""

from credit.scorer.around import UniquePairs
from credit.scorer.base import ModelScorer, PairScorer
from credit.scorer.over_ranks import shared_model
from credit.scorer.registry import around_model, has_model, make_scorer, scorer_names

__all__ = [
    "ModelScorer",
    "PairScorer",
    "UniquePairs",
    "around_model",
    "has_model",
    "make_scorer",
    "scorer_names",
    "shared_model",
]
