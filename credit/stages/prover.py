"""ProVer: a stretch of a success is credited by what continuations from before and after it achieve."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from configs.params import param
from credit.base import Reweighter
from credit.parts.continuations import PROPOSERS, Candidate, Judge, Segment, candidates
from credit.parts.token_rows import added
from credit.signals import Context, Estimated, Signals
from credit.table import StepTable


@dataclass(frozen=True)
class ProVer(Reweighter):
    """A~_i = A_i + lam max(0, D) u for rows i of the verified segment,  D = success after - success before.

    arXiv 2609.36178. In a group with few successes one segment of the shortest success is proposed
    (`credit.parts.continuations.candidates`). The current policy plays on `samples` times from the state
    before it and as often from the state after it (service `continuations`); D is the difference of the two
    success rates, and only a positive D counts. Continuations themselves are not trained on. The base
    advantage is the outcome less the group's mean, without standard deviation (`grpo` with `norm: mean`).

    Departures, and what is NOT RECOVERABLE (no code, and of the text only the abstract); the default, and
    why:
        proposer       the paper asks a judge model that can search the trajectories, whose prompt is not
                       public; `first_divergence` needs no model; `judge` asks the service `judge`
        successes      1 to 3 of 8 in the paper; absolute numbers here too, so adapt them to other group sizes
        gain_unit      u = 1 where success is worth 1, as there; success_reward makes u the trajectory's
                       outcome, so that the bonus keeps its proportion to A when a success is worth 10
    """

    lam: float = param(1.0, "weight of a verified gain in the advantage", low=0)
    proposer: str = param("first_divergence", "who proposes the segment", choices=PROPOSERS)
    min_successes: int = param(1, "fewest successes of a group that is looked at", low=1)
    max_successes: int = param(3, "most of them", low=1)
    max_steps: int = param(4, "longest segment, steps", low=1)
    samples: int = param(8, "continuations from each of the two states", low=1)
    gain_unit: str = param(
        "success_reward",
        "the gain in units of the trajectory's outcome, or raw",
        choices=("success_reward", "raw"),
    )

    requires = frozenset({"continuations"})
    activity = "verified_fraction"
    credited = "bonus"
    metrics_doc = {
        "proposed_groups": "share of groups with a proposed segment",
        "segments": "segments that were continued from",
        "verified_fraction": "share of them with a gain above 0",
        "gain_mean": "mean gain, success rate after less before",
        "continuations": "continuations played",
    }
    columns_doc = {
        "segment": "1 in rows of a segment that was continued from",
        "gain": "its gain, 0 elsewhere",
        "bonus": "what the advantage gained",
    }

    def reweight(self, table: StepTable, signals: Signals, context: Context) -> Estimated:
        proposed = candidates(
            table,
            proposer=self.proposer,
            min_successes=self.min_successes,
            max_successes=self.max_successes,
            max_steps=self.max_steps,
            rng=context.rng,
            judge=self._judge(context),
        )
        segments: Sequence[Segment] = ()
        if proposed:
            segments = context.services["continuations"].segments(table, proposed, self.samples)
        columns = {name: np.zeros(len(table)) for name in self.columns_doc}
        first = dict(zip(table.trajectory[table.t == 0].tolist(), table.trajectory_start[:-1], strict=True))
        known = set(proposed)
        for segment in segments:
            _check(segment, known)
            rows = slice(first[segment.trajectory] + segment.start, first[segment.trajectory] + segment.end)
            unit = table.outcome[rows] if self.gain_unit == "success_reward" else 1.0
            columns["segment"][rows] = 1.0
            columns["gain"][rows] = segment.gain
            columns["bonus"][rows] = self.lam * max(segment.gain, 0.0) * unit
        advantage = added(table, signals.advantage, columns["bonus"])
        return Estimated(advantage, _metrics(table, proposed, segments), columns)

    def _judge(self, context: Context) -> Judge | None:
        if self.proposer == "judge" and "judge" not in context.services:
            raise ValueError(
                f"credit.prover.proposer is 'judge' but there is no service 'judge', got "
                f"{sorted(context.services)}; pass services={{'judge': …}}, or choose first_divergence"
            )
        return context.services.get("judge")


def _check(segment: Segment, proposed: set[Candidate]) -> None:
    if Candidate(segment.trajectory, segment.start, segment.end) not in proposed:
        raise ValueError(f"credit.prover: the service `continuations` answered {segment}, which nobody asked")
    if not np.isfinite(segment.gain):
        raise ValueError(f"credit.prover: the gain of {segment} is not finite; expected after - before")


def _metrics(
    table: StepTable, proposed: Sequence[Candidate], segments: Sequence[Segment]
) -> dict[str, float]:
    if not len(table):
        return {}
    gains = np.array([segment.gain for segment in segments])
    return {
        "proposed_groups": len(proposed) / (int(table.group_index.max()) + 1),
        "segments": float(len(segments)),
        "verified_fraction": float(np.mean(gains > 0)) if len(gains) else 0.0,
        "gain_mean": float(gains.mean()) if len(gains) else 0.0,
        "continuations": float(sum(2 * segment.samples for segment in segments)),
    }
