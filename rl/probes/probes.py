"""What credit stages read beyond the step table, measured only when a stage of the pipeline asks for it.

Token columns, one number per response token, rows one after another as in the step table (responses cut by
length included, whether or not the loss sees them):

- `logp_sampled`: log-probability when sampled, as recorded by the rollout; scored anew where that is not what
  the learner says (below);
- `entropy`: of the distribution of the token (nats; the sampler's temperature included);
- `logp_ref`: log-probability under the frozen reference;
- `logp_peer`: under the learner's weights with a successful sibling's trajectory in the context;
- `logp_hindsight`: under them with the trajectory's own outcome and last observation in the context.

NaN where there is no such context. What the learner scores has the weights of now. Credit stages subtract
`logp_sampled` from a teacher's, and the difference has to be the context's alone: where the weights have
moved since (`rollout.staleness`), or the sampler computes otherwise than the learner, `logp_sampled` is the
learner's own, without a context, which costs a forward pass more.

The services are continuations, see `rl.probes.continuations`. Each measurement logs what it cost; one that
nobody asks for costs nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import nn

from agent.policy import Policy
from agent.prompts.builder import PromptBuilder
from agent.ranks import ALONE, Ranks
from agent.types import Group
from configs.params import did_you_mean
from credit.pipeline import Pipeline
from credit.table import StepTable
from rl.learner.forward import measure_rows
from rl.learner.learner import Learner
from rl.learner.reference import Reference
from rl.probes.continuations import Continuations
from rl.rows.assemble import token_rows
from rl.rows.privileged import PRIVILEGED, Peer, Privileged, hindsight_rows, peer_rows
from rl.settings import RolloutSettings

COLUMNS = ("logp_sampled", "entropy", "logp_ref", "logp_peer", "logp_hindsight")
"""Token columns that can be measured."""


@dataclass(frozen=True, slots=True)
class ProbeOptions:
    """How to measure.

    Attributes:
        peer: Which other success of the group is the context of `logp_peer`.
        window: Longest row with a privileged context (tokens); None: the prompts' window.
        token_budget: Most tokens per forward pass. Bounds memory, never changes a number.
        reference: What `logp_ref` is measured under.
        exact_sampler: Sampler and learner give the same log-probabilities from the same weights, but for
            float32's last digits.
    """

    peer: Peer = "random"
    window: int | None = None
    token_budget: int = 16384
    reference: Reference | None = None
    exact_sampler: bool = True


@dataclass(frozen=True, slots=True)
class Probed:
    """What credit is computed from.

    Attributes:
        table: The step table with the columns asked for.
        services: All that the stages require.
    """

    table: StepTable
    services: Mapping[str, Any]
    _columns: Mapping[str, float]
    _continuations: Continuations

    @property
    def metrics(self) -> dict[str, float]:
        """`probe/…` as far as measured: continuations are played when a stage asks, in the pipeline."""
        return {**self._columns, **self._continuations.metrics}


class Probes:
    """The measurements of a run; called once per update, between rollout and credit."""

    def __init__(
        self,
        policy: Policy,
        learner: Learner,
        pipeline: Pipeline,
        *,
        settings: RolloutSettings,
        options: ProbeOptions | None = None,
        services: Mapping[str, Any] | None = None,
        seed: int,
    ) -> None:
        """Checks that the pipeline gets all it needs.

        Args:
            policy: Plays continuations; at every call it has the learner's weights.
            learner: Its module scores tokens.
            pipeline: Says what it needs.
            settings: As in the rollout.
            options: How to measure; None for the defaults.
            services: The other services, by name.
            seed: Of the run.

        Raises:
            ValueError: a service or a column that nothing provides, or `logp_ref` without a reference.
        """
        self._policy, self._learner, self._settings = policy, learner, settings
        options = options or ProbeOptions()
        self._options, self._services, self._seed = options, services or {}, seed
        self._names = pipeline.token_columns
        pipeline.check_services({**self._services, "continuations": None})
        for name in sorted(self._names - set(COLUMNS)):
            raise ValueError(
                f"credit method {pipeline.name!r} reads the token column {name!r}, which no probe "
                f"measures{did_you_mean(name, COLUMNS)}"
            )
        if "logp_ref" in self._names and options.reference is None:
            raise ValueError(
                f"credit method {pipeline.name!r} reads the token column 'logp_ref', but there is no "
                "reference model; give ProbeOptions.reference"
            )

    def __call__(self, groups: Sequence[Group], table: StepTable) -> Probed:
        """Measures for one rollout.

        Args:
            groups: Of the rollout.
            table: `rl.rows.assemble.step_table` of them.
        """
        columns, metrics = token_columns(
            self._names,
            groups,
            module=self._learner.engine.module,
            version=self._learner.version,
            prompts=self._settings.prompts,
            temperature=self._settings.temperature,
            options=self._options,
            seed=self._seed,
            ranks=self._learner.ranks,
        )
        continuations = Continuations(
            self._policy,
            groups,
            self._settings,
            seed=self._seed,
        )
        if columns:
            table = replace(table, tokens=columns)
        return Probed(table, {**self._services, "continuations": continuations}, metrics, continuations)


def token_columns(
    names: Iterable[str],
    groups: Sequence[Group],
    *,
    module: nn.Module,
    version: int,
    prompts: PromptBuilder,
    temperature: float,
    options: ProbeOptions,
    seed: int,
    ranks: Ranks = ALONE,
) -> tuple[dict[str, np.ndarray], dict[str, float]]:
    """Measures the named columns.

    Args:
        names: Out of `COLUMNS`.
        groups: Of one rollout, in any order.
        module: A `ResponseModel` with the weights of now, or an engine's wrapper of one.
        version: Of these weights, as in `Step.policy_version`.
        prompts: As in the rollout.
        temperature: The sampler's.
        options: How to measure.
        seed: Of the run.
        ranks: Processes that share the scoring, all with the same groups.

    Returns:
        Name to float64 [sum(length)] in the order of `rl.rows.assemble.step_table`, and `probe/…` metrics.
    """
    names = set(names)
    if not names:
        return {}, {}
    rows = token_rows(groups, mask_truncated=False)
    window = options.window or prompts.window
    columns: dict[str, np.ndarray] = {}
    metrics: dict[str, float] = {}
    for name in sorted(names):
        if name == "logp_sampled" and _recorded_is_current(groups, version, options):  # costs nothing
            columns[name] = _joined([row.logp_sampled for row in rows])
            continue
        began = time.perf_counter()
        told = Privileged(list(rows), trimmed=0, no_room=0)
        if name == "logp_peer":
            told = peer_rows(rows, groups, prompts, window=window, which=options.peer, seed=seed)
        elif name == "logp_hindsight":
            told = hindsight_rows(rows, groups, prompts, window=window)
        seen = [row for row in told.rows if row is not None]
        with options.reference.scoring() if name == "logp_ref" else nullcontext(module) as scorer:
            measured = measure_rows(
                scorer, seen, temperature=temperature, token_budget=options.token_budget, ranks=ranks
            )
        values = iter([entropy if name == "entropy" else logp for logp, entropy in measured])
        columns[name] = _joined(
            [
                np.full(len(row.logp_sampled), np.nan) if other is None else next(values)
                for row, other in zip(rows, told.rows, strict=True)
            ]
        )
        metrics[f"probe/{name}/tokens"] = float(sum(len(row.ids) for row in seen))
        metrics[f"probe/{name}/seconds"] = time.perf_counter() - began
        if name in PRIVILEGED:
            metrics[f"probe/{name}/without"] = float(
                np.isnan(columns[name]).sum() / max(len(columns[name]), 1)
            )
            metrics[f"probe/{name}/trimmed"] = float(told.trimmed)
            metrics[f"probe/{name}/no_room"] = float(told.no_room)
    return columns, metrics


def _recorded_is_current(groups: Sequence[Group], version: int, options: ProbeOptions) -> bool:
    """Whether what the rollout recorded is what the learner would say now."""
    fresh = all(step.policy_version == version for group in groups for tr in group for step in tr.steps)
    return options.exact_sampler and fresh


def _joined(parts: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.empty(0), *parts])
