"""How alike two step texts are: `make_scorer(name)` builds the scorer in `credit/scorer/NAME.py`."""

from credit.scorer.around import UniquePairs
from credit.scorer.base import ModelScorer, PairScorer
from credit.scorer.registry import around_model, make_scorer, scorer_names

__all__ = ["ModelScorer", "PairScorer", "UniquePairs", "around_model", "make_scorer", "scorer_names"]
