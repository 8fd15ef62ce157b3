"""Finds a scorer by name and puts around it what spares it work.

A scorer is one file `credit/scorer/NAME.py` with one class `Scorer`: keyword options with defaults, heavy
imports inside its constructor (every file of the folder is imported to look for one), a `score` method as in
`PairScorer`, and `canonical` as described there. One with a model is a `ModelScorer`, and `around_model` puts
the wrappers of `credit/scorer/around.py` and `disk_cache.py` around it.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from pathlib import Path
from typing import Any

from configs.params import did_you_mean
from credit.scorer.around import Account, PairBudget, SortedBatches, UniquePairs
from credit.scorer.base import ModelScorer
from credit.scorer.disk_cache import DiskCache
from credit.scorer.over_ranks import SharedModel, Together

TOKEN_BUDGET = 32768
"""Most padded tokens of one batch, where nobody says."""


def scorer_names() -> list[str]:
    """Names of the scorers there are: the files of this folder with a class `Scorer`."""
    modules = [m.name for m in pkgutil.iter_modules([str(Path(__file__).parent)])]
    return [name for name in modules if hasattr(importlib.import_module(f"credit.scorer.{name}"), "Scorer")]


def has_model(name: str) -> bool:
    """Whether the scorer `name` runs a model, so that several processes may share its work."""
    return name in scorer_names() and hasattr(_class(name), "lengths")


def make_scorer(name: str, ranks: Together | None = None, **options: Any) -> UniquePairs:
    """The scorer `name`, asked once a distinct pair.

    A scorer with a model also takes the options of `around_model`.

    Args:
        name: one of `scorer_names()`.
        ranks: processes that share a model's work, all of which make the scorer; None: this one alone.
        options: of the scorer.

    Raises:
        ValueError: unknown name or option, with the nearest known one, or a value it refuses.
        ImportError: a package that the scorer needs is missing.
    """
    if name not in scorer_names():
        raise ValueError(f"credit.scorer: no scorer {name!r}{did_you_mean(name, scorer_names())}")
    scorer = _class(name)
    own = list(inspect.signature(scorer).parameters)
    around = list(inspect.signature(around_model).parameters)[1:] if has_model(name) else []
    for option in options:
        if option not in own + around:
            raise ValueError(
                f"credit.scorer.{name}: no option {option!r}{did_you_mean(option, own + around)}"
            )
    made = scorer(**{key: value for key, value in options.items() if key in own})
    if not has_model(name):
        return UniquePairs(made)
    if ranks is not None and ranks.size > 1:
        made = SharedModel(made, ranks)
    return around_model(made, **{key: value for key, value in options.items() if key in around})


def _class(name: str) -> type:
    return importlib.import_module(f"credit.scorer.{name}").Scorer


def around_model(
    scorer: ModelScorer, token_budget: int = TOKEN_BUDGET, cache: str = "", max_pairs: int = 0
) -> UniquePairs:
    """A model's scorer with all wrappers around it; only the budget can change a score.

    Args:
        scorer: runs the model.
        token_budget: most padded tokens of one batch (memory and speed).
        cache: file that keeps scores between runs ('': none); processes may share it.
        max_pairs: most pairs per update that the model may be asked about (0: any number); pairs beyond
            them score 0, so they go without credit.
    """
    account = Account()
    stack: Any = SortedBatches(scorer, account, token_budget)
    if max_pairs:
        stack = PairBudget(stack, account, max_pairs)
    if cache:
        stack = DiskCache(stack, account, cache)
    return UniquePairs(stack, account=account)
