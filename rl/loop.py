"""The outer loop: updates (`rl.update`), with evaluations and checkpoints between."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from math import inf
from typing import Any

from agent.policy import Policy
from configs.choosing import CHOOSING
from credit.pipeline import Pipeline
from credit.stages.tree_search import TreeSearch
from rl.checkpoint import CheckpointError, TrainState
from rl.learner.learner import Learner
from rl.probes.probes import ProbeOptions
from rl.search.searcher import Searcher
from rl.settings import Evaluate, Outputs, RolloutSettings, RunSchedule
from rl.sync import sync
from rl.tracking.progress import ProgressPanel
from rl.tracking.timing import Clock
from rl.update import Updater


def train(
    policy: Policy,
    learner: Learner,
    pipeline: Pipeline,
    *,
    settings: RolloutSettings,
    schedule: RunSchedule,
    outputs: Outputs,
    state: TrainState,
    services: Mapping[str, Any] | None = None,
    probing: ProbeOptions | None = None,
    evaluate: Evaluate | None = None,
) -> TrainState:
    """Trains until `schedule.updates` updates are done.

    Args:
        policy: Samples; gets the learner's weights before the first update and after each.
        learner: Trains; as new, or restored together with `state`.
        pipeline: The credit method.
        settings: Tasks, environments and sampling.
        schedule: Updates and intervals.
        outputs: Metrics, checkpoints, trajectories, console.
        state: `TrainState()`, or what `Checkpoints.restore` returned.
        services: What the credit stages require, by name, continuations apart.
        probing: How token columns and continuations are made, where a credit stage asks for them.
        evaluate: Called before the first update, every `schedule.eval_every`, and at the end.

    Returns:
        The state after the last update; its checkpoint is the newest.
    """
    make_update = (
        Searcher(policy, learner, pipeline, settings=settings, schedule=schedule)
        if any(isinstance(stage, TreeSearch) for stage in pipeline.steers)
        else Updater(
            policy,
            learner,
            pipeline,
            settings=settings,
            schedule=schedule,
            services=services,
            probing=probing,
        )
    )
    choose_by = outputs.checkpoints.keep_best
    sync(learner, policy, schedule.contract)
    if state.update == 0 and evaluate:
        metrics, state = _evaluate(evaluate, policy, state, outputs.progress, choose_by)
        outputs.tracker.log(0, metrics)
        if choose_by:
            outputs.checkpoints.save(learner, state)
    for update in range(state.update + 1, schedule.updates + 1):
        clock = Clock(update, outputs.progress)
        done = make_update(state, clock, outputs.progress.trajectories)
        extra = state.extra_tasks + done.extra_tasks
        state = replace(state, update=update, extra_tasks=extra, credit=done.credit.state)
        metrics = done.metrics
        if outputs.store.due(update):
            with clock("store"):
                outputs.store.write(update, done.groups, done.table, done.credit, done.logp_now)
        if evaluate and _due(update, schedule.eval_every, schedule.updates):
            with clock("eval"):
                evaluated, state = _evaluate(evaluate, policy, state, outputs.progress, choose_by)
            metrics |= evaluated
        metrics |= clock.metrics(metrics["rollout/tokens"])
        outputs.tracker.log(update, metrics)
        outputs.progress.line(update, metrics)
        best = choose_by is not None and state.best.get("update") == update
        if best or _due(
            update, schedule.checkpoint_every, schedule.updates
        ):  # last: it vouches for all of the above
            outputs.progress.stage(update, "checkpoint")
            outputs.checkpoints.save(learner, state)
    return state


def _due(update: int, every: int, last: int) -> bool:
    return update == last or (every > 0 and update % every == 0)


def _evaluate(
    evaluate: Evaluate, policy: Policy, state: TrainState, progress: ProgressPanel, choose_by: str | None
) -> tuple[dict[str, float], TrainState]:
    """Evaluates, and remembers the best so far: the highest success, or what the best is kept by.

    Of equal ones the earliest stays.
    """
    progress.stage(state.update, "evaluation")
    metrics = dict(evaluate(policy, state.update))
    progress.evaluated(state.update, metrics)
    name = choose_by or "eval/success"
    if name not in metrics:
        there = ", ".join(sorted(name for name in metrics if re.fullmatch(CHOOSING, name)))
        raise CheckpointError(
            f"checkpoint.keep_best={name}, but this run's evaluations give no such metric. There are: {there}"
        )
    if metrics[name] > state.best.get(name, -inf):
        since = state.best.get("since", float(state.update))
        state = replace(state, best={name: metrics[name], "update": float(state.update), "since": since})
    return metrics, state
