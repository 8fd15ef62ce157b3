"""One update: rollout → credit → learner → sync."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent.policy import Policy
from agent.rollout.options import Progress
from agent.types import Group
from credit.pipeline import CreditResult, Pipeline
from credit.scorer import shared_model
from credit.table import StepTable
from rl.checkpoint import TrainState
from rl.collect import Collected, collect
from rl.learner.learner import Learner
from rl.prefetch import Prefetch
from rl.probes.probes import Probed, ProbeOptions, Probes
from rl.rows.assemble import TokenRow, advantage_of, aux_of, by_token, token_rows
from rl.rows.unplayed import share_advantage, unplayed_rows
from rl.settings import RolloutSettings, RunSchedule
from rl.sync import sync
from rl.tracking.metrics import staleness
from rl.tracking.timing import Clock


@dataclass(frozen=True, slots=True)
class Updated:
    """What an update did; the learner is trained, and the policy has its weights.

    Attributes:
        groups: What was trained on.
        table: Of these.
        credit: Of each step; its state is for the next update.
        metrics: `rollout/…`, `probe/…`, `credit/…` and `train/…`.
        extra_tasks: Tasks drawn beyond `RolloutSettings.groups`.
        logp_now: By the learner before the update, see `rl.rows.assemble.by_token`; None: not measured.
    """

    groups: list[Group]
    table: StepTable
    credit: CreditResult
    metrics: dict[str, float]
    extra_tasks: int = 0
    logp_now: list[list[float | None]] | None = None


class Updater:
    """Makes updates of trajectories that are rolled out, then credited, then trained on.

    Args:
        policy: Samples.
        learner: Trains.
        pipeline: The credit method.
        settings: Tasks, environments and sampling.
        schedule: Seed and length of the run.
        services: See `rl.loop.train`.
        probing: See `rl.loop.train`.
    """

    def __init__(
        self,
        policy: Policy,
        learner: Learner,
        pipeline: Pipeline,
        *,
        settings: RolloutSettings,
        schedule: RunSchedule,
        services: Mapping[str, Any] | None = None,
        probing: ProbeOptions | None = None,
    ) -> None:
        self._policy, self._learner, self._pipeline = policy, learner, pipeline
        self._settings, self._schedule = settings, schedule
        self._channel = learner.engine.channel()
        self._prefetch: Prefetch[Collected] | None = None
        self._model = shared_model((services or {}).get("pair_scorer"))
        self._probe = Probes(
            policy,
            learner,
            pipeline,
            settings=settings,
            options=probing,
            services=services,
            seed=schedule.seed,
        )

    def __call__(self, state: TrainState, clock: Clock, on_progress: Progress | None = None) -> Updated:
        """Makes the update after `state`."""
        settings, pipeline, update = self._settings, self._pipeline, state.update + 1
        with clock("rollout"):
            prefetched, self._prefetch = self._prefetch, None
            collected = (
                prefetched.take() if prefetched else self._collect(first_task(state, settings), on_progress)
            )
            groups = collected.groups
        with clock("credit"):
            rows = self._rows(groups)
        prepared = None
        if (
            self._learner.masks and settings.masked_rows == "abstain"
        ):  # who votes is known once rows are scored
            with clock("score"):
                prepared = self._learner.prepare(rows)
        with clock("credit"):
            table = settings.table(groups, prepared.rows if prepared else rows)
            probed = self._probe(groups, table)
            credit = self._credit(probed, state)
        if self._schedule.staleness and update < self._schedule.updates:
            position = first_task(state, settings) + settings.groups + collected.extra_tasks
            self._prefetch = Prefetch(lambda: self._collect(position, None))
        else:
            self._policy.sleep()
        logp_now = None
        if self._schedule.score_every and state.update % self._schedule.score_every == 0:
            with clock("score"):
                scored = token_rows(groups, mask_truncated=False)
                logp_now = by_token(groups, scored, self._learner.logps(scored))
        with clock("learner"):
            advantage, aux = advantage_of(table, credit), aux_of(table, credit)
            for steer in pipeline.steers:
                advantage = share_advantage(
                    groups, advantage, weigh=steer.weigh, turns=settings.prompts.turns
                )
            stale = staleness(groups, self._learner.version)
            trained = self._learner.update(prepared or rows, advantage, update=update, aux=aux)
        with clock("sync"):
            if self._prefetch:
                self._prefetch.wait()  # it samples with the weights that are about to change
            synced = sync(self._learner, self._policy, self._schedule.contract)
        metrics = {**collected.metrics, **probed.metrics, **credit.metrics, **stale, **trained, **synced}
        return Updated(groups, table, credit, metrics, collected.extra_tasks, logp_now)

    def _rows(self, groups: Sequence[Group]) -> list[TokenRow]:
        """Token rows of the played answers, then of those recorded beside them."""
        masked = self._settings.mask_truncated
        steps = sum(len(trajectory.steps) for group in groups for trajectory in group)
        played = token_rows(groups, mask_truncated=masked)
        return [*played, *unplayed_rows(groups, first=steps, mask_truncated=masked)]

    def _collect(self, position: int, on_progress: Progress | None) -> Collected:
        return collect(
            self._policy,
            self._settings,
            self._pipeline.filters,
            position=position,
            seed=self._schedule.seed,
            on_progress=on_progress,
        )

    def _credit(self, probed: Probed, state: TrainState) -> CreditResult:
        """Credit is computed once: ranks that disagreed on a bit would wait for each other without end.

        Only a scorer's model, which takes seconds, runs on all of them.
        """
        if self._channel.rank:
            if self._model is not None:
                self._model.serve()
            return self._channel.share(None)
        credit = self._pipeline.run(
            probed.table,
            probed.services,
            seed=self._schedule.seed,
            step=state.update + 1,
            state=state.credit,
        )
        if self._model is not None:
            self._model.end()
        return self._channel.share(credit)


def first_task(state: TrainState, settings: RolloutSettings) -> int:
    """Tasks drawn by all updates before; the numbers of groups over the run count on from there."""
    return state.update * settings.groups + state.extra_tasks
