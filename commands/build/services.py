"""Builds the services that credit stages require besides the table: a pair scorer, ProVer's judge."""

from __future__ import annotations

import os
from typing import Any

from agent.ranks import ALONE, Ranks
from configs.schema import Config
from configs.text import ConfigError
from credit.pipeline import Pipeline
from credit.scorer import has_model, make_scorer


def credit_services(config: Config, pipeline: Pipeline, ranks: Ranks = ALONE) -> dict[str, Any]:
    """Returns the services that the credit stages require, by name, except continuations.

    Credit is computed by the first process. The others need nothing but their share of a scorer's model.

    Raises:
        ConfigError: An unknown option of the scorer, a package it needs is not installed, or a judge is asked
            for but not configured.
    """
    if ranks.rank and not ("pair_scorer" in pipeline.requires and has_model(config.scorer.name)):
        return dict.fromkeys(pipeline.requires)
    made = _judge(config, pipeline)
    if "pair_scorer" not in pipeline.requires:
        return made
    try:
        return made | {"pair_scorer": make_scorer(config.scorer.name, ranks, **config.scorer.options)}
    except (ValueError, ImportError) as error:
        raise ConfigError(
            f"scorer.name={config.scorer.name}: {error}. `python run.py doctor` says more."
        ) from error


def _judge(config: Config, pipeline: Pipeline) -> dict[str, Any]:
    """Returns ProVer's judge, if the method asks for one."""
    asking = [stage for stage in pipeline.stages if getattr(stage, "proposer", "") == "judge"]
    if not asking:
        return {}
    if config.probes.judge_url is None:
        raise ConfigError(
            f"credit.{asking[0].name()}.proposer=judge needs a model to ask: set probes.judge_url and "
            "probes.judge_model, or choose first_divergence or random"
        )
    from rl.probes.prover_judge import ChatJudge

    key = os.environ.get("SIBLING_JUDGE_KEY")
    probes = config.probes
    return {"judge": ChatJudge(probes.judge_url, probes.judge_model, key=key, max_steps=asking[0].max_steps)}
