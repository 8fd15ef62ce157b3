"""Runs evaluations, and chooses how rollouts are run, as a configuration says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from configs.schema import Config
from envs.base import Task

if TYPE_CHECKING:  # torch takes seconds to import
    from agent.policy import Policy
    from agent.prompts.builder import PromptBuilder
    from agent.ranks import Ranks
    from agent.rollout.groups import OnFailure
    from agent.rollout.options import Environments, RolloutOptions
    from eval.result import EvalResult


def evaluation(
    config: Config,
    policy: Policy,
    prompts: PromptBuilder,
    tasks: Sequence[Task],
    environments: Environments,
    on_progress: Callable[[int, int], None] | None = None,
    ranks: Ranks | None = None,
) -> EvalResult:
    """Evaluates a policy as the configuration says; all commands evaluate with this function."""
    from agent.policy import Sampling
    from eval.evaluate import evaluate

    return evaluate(
        policy,
        environments,
        tasks,
        prompts,
        sampling=Sampling(config.eval.temperature),
        seed=config.seed,
        max_parallel=config.eval.max_parallel,
        samples=config.eval.samples,
        options=rollout_options(config),
        on_progress=on_progress,
        ranks=ranks,
    )


def rollout_options(config: Config, on_failure: OnFailure = "stop") -> RolloutOptions:
    """Returns how rollouts are run; `rollout.mode=auto` depends on the machine."""
    import torch

    from agent.rollout.options import RolloutOptions

    mode = config.rollout.mode
    if mode == "auto":
        mode = "free" if torch.cuda.is_available() else "deterministic"
    return RolloutOptions(mode, on_failure, config.rollout.time_limit_s, config.rollout.watchdog_s)
