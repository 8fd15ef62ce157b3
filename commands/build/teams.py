"""Checks and builds teams: processes that hold one generator together (`generator.tensor_parallel`)."""

from __future__ import annotations

import os

from transformers import PreTrainedModel

from agent.policy import Policy
from agent.team_policy import TeamPolicy
from configs.schema import Config
from configs.text import ConfigError
from credit.pipeline import Pipeline


def check_team(config: Config, model: PreTrainedModel) -> None:
    """Raises a ConfigError if the processes or the model cannot be divided into parts of equal size."""
    size = config.generator.tensor_parallel
    text = model.config.get_text_config()
    heads = text.num_attention_heads
    shared = getattr(text, "num_key_value_heads", None) or heads
    here = int(os.environ.get("WORLD_SIZE", "1"))
    for what, count, cure in (
        ("the number of processes", here, "start the run with --nproc so that it does"),
        (
            "the processes of each machine",
            int(os.environ.get("LOCAL_WORLD_SIZE", here)),
            "a team's cards talk in every layer and belong into one machine",
        ),
        ("the model's attention heads", heads, "choose a divisor"),
        ("the model's key-value heads", shared, "choose a divisor"),
    ):
        if count % size:
            raise ConfigError(
                f"generator.tensor_parallel={size} must divide {what} ({count}): {cure}, or set "
                "generator.tensor_parallel=1"
            )


def check_team_credit(config: Config, pipeline: Pipeline) -> None:
    """Raises a ConfigError if a credit method would ask one process's generator while the others wait."""
    size = config.generator.tensor_parallel
    if size > 1 and "continuations" in pipeline.requires:
        raise ConfigError(
            f"credit method {pipeline.name!r} plays continuations on the first process alone, but with "
            f"generator.tensor_parallel={size} no process generates alone: set generator.tensor_parallel=1"
        )


def in_team(config: Config, policy: Policy) -> Policy:
    """Returns the policy as its team holds it; every process of the run must call this."""
    if config.generator.tensor_parallel == 1:
        return policy
    from rl.learner.teams import TeamChannel

    return TeamPolicy(policy, TeamChannel(config.generator.tensor_parallel, config.train.timeout_s))
