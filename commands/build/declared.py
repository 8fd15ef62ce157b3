"""Checks the options that stages and worlds declare themselves, and documents them for `run.py show`."""

from __future__ import annotations

from typing import Any

from configs.load import Loaded
from configs.show import Docs
from configs.text import ConfigError, suggest
from configs.worlds import WORLDS
from credit.pipeline import Pipeline
from credit.registry import all_stages
from credit.scorer import scorer_names
from envs.worlds import world_class


def stage_docs(stage: str) -> dict[str, tuple[Any, str]]:
    """Returns {option: (default, meaning)} of a credit stage."""
    return all_stages()[stage].documented()


def world_docs(name: str) -> dict[str, tuple[Any, str]]:
    """Returns {option: (default, meaning)} of a built-in world; {} for a user's own, which is not loaded."""
    return world_class(name).Options.documented() if name in WORLDS else {}


DOCS = Docs(stage_docs, world_docs)
"""The options that `configs.show` cannot know."""


def check_world(loaded: Loaded) -> None:
    """Checks the world's name and options without opening it.

    Raises:
        ConfigError: There is no such world, or an option does not fit.
    """
    env = loaded.config.env
    try:
        world_class(env.name).read_options(env)
    except ConfigError as error:
        source = loaded.sources.get(str(error).partition(":")[0])  # "env.options.products: got 0, …"
        raise ConfigError(f"{error} ({source})" if source else str(error)) from error


def credit_pipeline(loaded: Loaded) -> Pipeline:
    """Returns the credit method after checking its options and its scorer's name.

    Raises:
        ConfigError: An unknown stage, option or scorer, a value out of range, an impossible order of stages.
    """
    credit, scorer = loaded.config.credit, loaded.config.scorer.name
    if scorer not in scorer_names():
        raise ConfigError(
            f"unknown scorer.name {scorer!r} ({loaded.source('scorer.name')})"
            f"{suggest(scorer, scorer_names())} There are: {', '.join(scorer_names())}"
        )
    try:
        return Pipeline.from_config(credit.stages, credit.name)
    except ValueError as error:
        option = str(error).partition(":")[0].removeprefix("credit.")  # "credit.scpo.theta: got 8.0, …"
        source = loaded.sources.get(f"credit.stages.{option}")
        raise ConfigError(f"{error} ({source})" if source else str(error)) from error
