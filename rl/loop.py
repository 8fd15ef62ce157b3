"""The outer loop: updates (`rl.update`), with evaluations and checkpoints between."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from agent.policy import Policy
from credit.branch import Branch
from credit.pipeline import Pipeline
from rl.checkpoint import TrainState
from rl.learner import Learner
from rl.plan import Evaluate, Outputs, Plan, Play
from rl.probes import ProbeOptions
from rl.progress import Progress
from rl.search import Searcher
from rl.sync import sync
from rl.timing import Clock
from rl.update import Updater


def train(
    policy: Policy,
    learner: Learner,
    pipeline: Pipeline,
    *,
    play: Play,
    plan: Plan,
    outputs: Outputs,
    state: TrainState,
    services: Mapping[str, Any] | None = None,
    probing: ProbeOptions | None = None,
    evaluate: Evaluate | None = None,
) -> TrainState:
    """Trains until `plan.updates` updates are done.

    Args:
        policy: Samples; gets the learner's weights before the first update and after each.
        learner: Trains; as new, or restored together with `state`.
        pipeline: The credit method.
        play: Tasks, environments and sampling.
        plan: Updates and intervals.
        outputs: Metrics, checkpoints, trajectories, console.
        state: `TrainState()`, or what `Checkpoints.restore` returned.
        services: What the credit stages require, by name, continuations apart.
        probing: How token columns and continuations are made, where a credit stage asks for them.
        evaluate: Called before the first update, every `plan.eval_every`, and at the end.

    Returns:
        The state after the last update; its checkpoint is the newest.
    """
    make_update = (
        Searcher(policy, learner, pipeline, play=play, plan=plan)
        if any(isinstance(stage, Branch) for stage in pipeline.steers)
        else Updater(policy, learner, pipeline, play=play, plan=plan, services=services, probing=probing)
    )
    sync(learner, policy, plan.contract)
    if state.update == 0 and evaluate:
        metrics, state = _evaluate(evaluate, policy, state, outputs.progress)
        outputs.tracker.log(0, metrics)
    for update in range(state.update + 1, plan.updates + 1):
        clock = Clock(update, outputs.progress)
        done = make_update(state, clock, outputs.progress.trajectories)
        extra = state.extra_tasks + done.extra_tasks
        state = replace(state, update=update, extra_tasks=extra, credit=done.credit.state)
        metrics = done.metrics
        if outputs.store.due(update):
            with clock("store"):
                outputs.store.write(update, done.groups, done.table, done.credit, done.logp_now)
        if evaluate and _due(update, plan.eval_every, plan.updates):
            with clock("eval"):
                evaluated, state = _evaluate(evaluate, policy, state, outputs.progress)
            metrics |= evaluated
        metrics |= clock.metrics(metrics["rollout/tokens"])
        outputs.tracker.log(update, metrics)
        outputs.progress.line(update, metrics)
        if _due(update, plan.checkpoint_every, plan.updates):  # last: it vouches for all of the above
            outputs.progress.stage(update, "checkpoint")
            outputs.checkpoints.save(learner, state)
    return state


def _due(update: int, every: int, last: int) -> bool:
    return update == last or (every > 0 and update % every == 0)


def _evaluate(
    evaluate: Evaluate, policy: Policy, state: TrainState, progress: Progress
) -> tuple[dict[str, float], TrainState]:
    """Evaluates, and remembers the best success so far."""
    progress.stage(state.update, "evaluation")
    metrics = dict(evaluate(policy, state.update))
    progress.evaluated(state.update, metrics)
    if metrics["eval/success"] > state.best.get("eval/success", -1.0):
        best = {"eval/success": metrics["eval/success"], "update": float(state.update)}
        state = replace(state, best=best)
    return metrics, state
