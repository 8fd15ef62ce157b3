"""Evaluation of a policy on a whole, fixed list of tasks."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from agent.policy import Policy, Sampling
from agent.prompts import PromptBuilder
from agent.rollout import Progress, rollout
from agent.types import Trajectory
from configs.seeds import derive
from envs.base import Env, Task
from eval.result import EvalResult, TaskResult, check_ids


def evaluate(
    policy: Policy,
    make_env: Callable[[], Env],
    tasks: Sequence[Task],
    prompts: PromptBuilder,
    *,
    sampling: Sampling,
    seed: int,
    max_parallel: int,
    on_progress: Progress | None = None,
) -> EvalResult:
    """Plays every task once and counts.

    A task's seeds derive from its id. So what becomes of it depends neither on the order of `tasks` nor on
    which others are played, and on `max_parallel` only through the rounding of batched arithmetic. No task
    is left out, or counted twice, to fill a batch.

    Args:
        policy: What generates the responses.
        make_env: Makes one environment; at most `max_parallel` are made.
        tasks: The whole list, each task once.
        prompts: Turns observations into tokens; knows the longest response.
        sampling: Temperature; 0 is greedy.
        seed: The run's seed.
        max_parallel: Trajectories in flight.
        on_progress: Called now and then with (tasks done, tokens sampled).

    Raises:
        EvalError: `tasks` is empty or names a task twice.
    """
    started = time.perf_counter()
    check_ids([task.id for task in tasks])
    groups = rollout(
        policy,
        sampling,
        make_env,
        tasks,
        group_size=1,
        prompts=prompts,
        max_parallel=max_parallel,
        seed=derive(seed, "eval"),
        names=[task.id for task in tasks],
        on_progress=on_progress,
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
