"""One update: rollout → credit → learner → sync."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agent.policy import Policy
from agent.rollout import Progress
from agent.types import Group
from credit.pipeline import CreditResult, Pipeline
from credit.table import StepTable
from rl.assemble import advantage_of, aux_of, step_table, token_rows
from rl.checkpoint import TrainState
from rl.collect import collect
from rl.learner import Learner
from rl.plan import Play
from rl.probes import ProbeOptions, Probes
from rl.spares import with_spares
from rl.sync import sync
from rl.timing import Clock


@dataclass(frozen=True, slots=True)
class Updated:
    """What an update did; the learner is trained, and the policy has its weights.

    Attributes:
        groups: What was trained on.
        table: Of these.
        credit: Of each step; its state is for the next update.
        metrics: `rollout/…`, `probe/…`, `credit/…` and `train/…`.
        extra_tasks: Tasks drawn beyond `Play.groups`.
    """

    groups: list[Group]
    table: StepTable
    credit: CreditResult
    metrics: dict[str, float]
    extra_tasks: int = 0


class Updater:
    """Makes updates of trajectories that are rolled out, then credited, then trained on.

    Args:
        policy: Samples.
        learner: Trains.
        pipeline: The credit method.
        play: Tasks, environments and sampling.
        seed: Of the run.
        services: See `rl.loop.train`.
        probing: See `rl.loop.train`.
    """

    def __init__(
        self,
        policy: Policy,
        learner: Learner,
        pipeline: Pipeline,
        *,
        play: Play,
        seed: int,
        services: Mapping[str, Any] | None = None,
        probing: ProbeOptions | None = None,
    ) -> None:
        self._policy, self._learner, self._pipeline = policy, learner, pipeline
        self._play, self._seed = play, seed
        self._probe = Probes(
            policy, learner, pipeline, play=play, options=probing, services=services, seed=seed
        )

    def __call__(self, state: TrainState, clock: Clock, on_progress: Progress | None = None) -> Updated:
        """Makes the update after `state`."""
        play, pipeline, update = self._play, self._pipeline, state.update + 1
        with clock("rollout"):
            collected = collect(
                self._policy,
                play,
                pipeline.filters,
                position=first_task(state, play),
                seed=self._seed,
                on_progress=on_progress,
            )
            groups = collected.groups
        with clock("credit"):
            table = step_table(groups, success_reward=play.success_reward)
            probed = self._probe(groups, table)
            credit = pipeline.run(
                probed.table, probed.services, seed=self._seed, step=update, state=state.credit
            )
            rows = token_rows(groups, mask_truncated=play.mask_truncated)
        with clock("learner"):
            advantage, aux = advantage_of(table, credit), aux_of(table, credit)
            for steer in pipeline.steers:
                rows, advantage = with_spares(
                    groups,
                    rows,
                    advantage,
                    weigh=steer.weigh,
                    turns=play.prompts.turns,
                    mask_truncated=play.mask_truncated,
                )
            trained = self._learner.update(rows, advantage, update=update, aux=aux)
        with clock("sync"):
            sync(self._learner, self._policy)
        metrics = {**collected.metrics, **probed.metrics, **credit.metrics, **trained}
        return Updated(groups, table, credit, metrics, collected.extra_tasks)


def first_task(state: TrainState, play: Play) -> int:
    """Tasks drawn by all updates before; the numbers of groups over the run count on from there."""
    return state.update * play.groups + state.extra_tasks
