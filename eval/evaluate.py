"""Evaluation of a policy on a whole, fixed list of tasks."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from agent.policy import Policy, Sampling
from agent.rollout import rollout
from agent.types import Trajectory
from configs.seeds import derive
from envs.base import Env, Task
from eval.result import EvalResult, TaskResult


def evaluate(
    policy: Policy,
    make_env: Callable[[], Env],
    tasks: Sequence[Task],
    prompts: Any,
    *,
    sampling: Sampling,
    seed: int,
    max_parallel: int,
    max_response_tokens: int,
    on_progress: Callable[..., None] | None = None,
) -> EvalResult:
    """Plays every task once and counts.

    Each task's seed derives from its id, so neither the order of `tasks`, nor which others are
    evaluated with it, nor `max_parallel` changes how it is sampled.

    Args:
        policy: What generates the responses.
        make_env: Makes one environment instance.
        tasks: All tasks to play, each once. Nothing is left out to fill batches.
        prompts: Builder of the prompts, as in `agent.rollout`.
        sampling: Temperature; 0 is greedy.
        seed: The run's seed.
        max_parallel: Trajectories in flight.
        max_response_tokens: Longest response, stop token included.
        on_progress: Passed on to `agent.rollout.rollout`.

    Raises:
        EvalError: `tasks` is empty or names a task twice.
    """
    started = time.perf_counter()
    groups = rollout(
        policy,
        sampling,
        make_env,
        tasks,
        group_size=1,
        prompts=prompts,
        max_parallel=max_parallel,
        seed=seed,
        seeds=[derive(seed, "eval", task.id) for task in tasks],
        on_progress=on_progress,
        max_response_tokens=max_response_tokens,
    )
    return EvalResult(
        tasks=tuple(task_result(trajectory) for group in groups for trajectory in group),
        seed=seed,
        temperature=sampling.temperature,
        policy_version=policy.version,
        seconds=time.perf_counter() - started,
    )


def task_result(trajectory: Trajectory) -> TaskResult:
    """Returns what an evaluation keeps of a finished trajectory."""
    steps = trajectory.steps
    return TaskResult(
        task_id=trajectory.task_id,
        family=trajectory.family,
        success=trajectory.success,
        score=trajectory.score,
        truncated=trajectory.truncated,
        steps=len(steps),
        well_formed=sum(step.well_formed for step in steps),
        admissible=sum(step.admissible for step in steps),
        valid=sum(step.valid for step in steps),
        tokens=trajectory.tokens_sampled,
    )
