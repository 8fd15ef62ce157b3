"""How alike two step texts are: `make_scorer(name)` builds the scorer in `credit/scorer/<name>.py`."""

from credit.scorer._around import UniquePairs
from credit.scorer.base import ModelScorer, PairScorer, around_model, make_scorer, scorer_names

__all__ = ["ModelScorer", "PairScorer", "UniquePairs", "around_model", "make_scorer", "scorer_names"]
