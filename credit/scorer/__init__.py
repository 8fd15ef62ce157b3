"""How alike two step texts are: `make_scorer(name)` builds the scorer in `credit/scorer/<name>.py`."""

from credit.scorer.base import PairScorer, UniquePairs, make_scorer, scorer_names

__all__ = ["PairScorer", "UniquePairs", "make_scorer", "scorer_names"]
