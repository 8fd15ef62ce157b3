"""What a pair scorer is, and how one is made with everything that spares it work.

A scorer is one file `credit/scorer/<name>.py` with one class `Scorer`: keyword options with defaults, heavy
imports inside its constructor, a `score` method as in `PairScorer`, and `canonical` as described there. One
with a model is a `ModelScorer`, which `make_scorer` surrounds with the wrappers of `credit/scorer/_around.py`
and `_disk.py`. Files that start with an underscore are helpers.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from credit.base import did_you_mean
from credit.scorer._around import Account, PairBudget, SortedBatches, UniquePairs
from credit.scorer._disk import DiskCache


class PairScorer(Protocol):
    """Similarity of text pairs.

    Attributes:
        canonical: optional; what of a text the score depends on. Two texts of one canonical form score 1
            exactly, any other two less. None (or no such attribute) where the scorer's definition does not
            say so.
    """

    canonical: Callable[[str], str] | None

    def score(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        """float [len(pairs)] in [0, 1]; high for the same meaning. The order within a pair may matter."""


class ModelScorer(PairScorer, Protocol):
    """A pair scorer that runs a model; `score` runs all the pairs it gets as one padded batch.

    Attributes:
        identity: the model, its weights and every option that moves a score; scores are kept under it.
        tokens_read: tokens the model has read so far.
        tokens_padded: padding it has computed beside them.
    """

    identity: str
    tokens_read: int
    tokens_padded: int

    def lengths(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        """int [len(pairs)]: tokens of each pair, scored by itself."""


def scorer_names() -> list[str]:
    """Names of the scorers there are."""
    modules = pkgutil.iter_modules([str(Path(__file__).parent)])
    return [m.name for m in modules if m.name != "base" and not m.name.startswith("_")]


def make_scorer(name: str, **options: Any) -> UniquePairs:
    """The scorer `name`, asked once a distinct pair.

    A scorer with a model also takes the options of `around_model`.

    Raises:
        ValueError: unknown name or option, with the nearest known one, or a value it refuses.
        ImportError: a package that the scorer needs is missing.
    """
    if name not in scorer_names():
        raise ValueError(f"credit.scorer: no scorer {name!r}{did_you_mean(name, scorer_names())}")
    scorer = importlib.import_module(f"credit.scorer.{name}").Scorer
    own = list(inspect.signature(scorer).parameters)
    has_model = hasattr(scorer, "lengths")
    around = list(inspect.signature(around_model).parameters)[1:] if has_model else []
    for option in options:
        if option not in own + around:
            raise ValueError(
                f"credit.scorer.{name}: no option {option!r}{did_you_mean(option, own + around)}"
            )
    made = scorer(**{key: value for key, value in options.items() if key in own})
    if not has_model:
        return UniquePairs(made)
    return around_model(made, **{key: value for key, value in options.items() if key in around})


def around_model(
    scorer: ModelScorer, token_budget: int = 32768, cache: str = "", max_pairs: int = 0
) -> UniquePairs:
    """A model's scorer with all wrappers around it; only the budget can change a score.

    Args:
        scorer: runs the model.
        token_budget: most padded tokens of one batch (memory and speed).
        cache: file that keeps scores between runs ('': none); processes may share it.
        max_pairs: most pairs an update that the model may be asked about (0: any number); pairs beyond
            them score 0, so they go without credit.
    """
    account = Account()
    stack: Any = SortedBatches(scorer, account, token_budget)
    if max_pairs:
        stack = PairBudget(stack, account, max_pairs)
    if cache:
        stack = DiskCache(stack, account, cache)
    return UniquePairs(stack, account=account)
