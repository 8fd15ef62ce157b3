"""Evaluation of a policy on a whole, fixed list of tasks."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from agent.policy import Policy, Sampling
from agent.prompts.builder import PromptBuilder
from agent.ranks import ALONE, Ranks
from agent.rollout.groups import Part
from agent.rollout.options import Environments, Progress, RolloutOptions
from agent.rollout.over_ranks import play_shared, scaled
from agent.rollout.rollout import Rollout
from agent.types import Trajectory
from configs.seeds import derive
from envs.base import Task
from eval.result import EvalError, EvalResult, TaskResult, check_ids


def evaluate(
    policy: Policy,
    environments: Environments,
    tasks: Sequence[Task],
    prompts: PromptBuilder,
    *,
    sampling: Sampling,
    seed: int,
    max_parallel: int,
    samples: int = 1,
    options: RolloutOptions | None = None,
    on_progress: Progress | None = None,
    ranks: Ranks | None = None,
) -> EvalResult:
    """Plays every task `samples` times and counts.

    The seeds of an attempt, of the policy and of the environment, derive from the task's id and the attempt's
    number. So what becomes of it depends neither on the order of `tasks` nor on which others are played, nor
    on `samples`, and on `max_parallel` only through the rounding of batched arithmetic. No task is left out,
    or counted twice, to fill a batch.

    Args:
        policy: What generates the responses.
        environments: A pool, or what makes an environment in this process.
        tasks: The whole list, each task once.
        prompts: Turns observations into tokens; knows the longest response.
        sampling: Temperature; 0 is greedy.
        seed: The run's seed.
        max_parallel: Trajectories in flight.
        samples: Attempts at each task, ≥ 1; more are for `EvalResult.overall.passes`.
        options: How the rollout is run; `on_failure` has no say here.
        on_progress: Called now and then with (attempts done, tokens sampled).
        ranks: Processes that share the playing; every one gets the whole result. None: this one alone.

    Raises:
        EvalError: `tasks` is empty or names a task twice, or tasks could not be played to their end: the rest
            is played first, then all of them are named. Nothing is ever left out silently.
    """
    started = time.perf_counter()
    check_ids([task.id for task in tasks])
    ranks = ranks or ALONE
    attempts = [(task, attempt) for task in tasks for attempt in range(samples)]

    def share(part: Part) -> Rollout:
        return Rollout(
            policy,
            sampling,
            environments,
            [task for task, _ in attempts],
            group_size=1,
            prompts=prompts,
            max_parallel=max_parallel,
            seed=derive(seed, "eval"),
            names=[_name(task.id, attempt) for task, attempt in attempts],
            part=part,
            options=replace(options or RolloutOptions(), on_failure="drop"),
            on_progress=scaled(on_progress, ranks, policy),
        )

    groups, counts = play_shared(share, ranks, group_size=1, policy=policy)
    if counts.lost:
        lost = "\n  ".join(f"{task}: {message}" for task, message in counts.lost.items())
        raise EvalError(
            f"{len(counts.lost)} of {len(tasks)} tasks could not be played, so there is no result:\n  "
            f"{lost}\nSee to the environments, and evaluate again."
        )
    return EvalResult(
        tasks=tuple(task_result(one, one.group % samples) for group in groups for one in group),
        seed=seed,
        temperature=sampling.temperature,
        policy_version=policy.version,
        seconds=time.perf_counter() - started,
    )


def _name(task_id: str, attempt: int) -> str:
    """What an attempt's seeds derive from; a first one has those of an evaluation without others."""
    return f"{task_id}/attempt {attempt}" if attempt else task_id


def task_result(trajectory: Trajectory, attempt: int = 0) -> TaskResult:
    """Returns what an evaluation keeps of a finished trajectory, the `attempt`-th at its task (from 0)."""
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
        attempt=attempt,
    )
