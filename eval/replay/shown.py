"""What the replay's page shows of a trajectory, and which trajectories it shows."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from credit.pipeline import CreditResult
from eval.replay.disagreement import sign_distance, spread
from eval.replay.recorded import Facts, Method, Recorded


@dataclass(frozen=True, slots=True)
class ShownMatch:
    """The sibling's step that a method matched a step with.

    Attributes:
        method: The method.
        index: The sibling's position in the group.
        t: Its step.
        similarity: Of the two, None if the method records none.
    """

    method: str
    index: int
    t: int
    similarity: float | None


@dataclass(frozen=True, slots=True)
class ShownStep:
    """A step as the page shows it; `advantage` has one value per method, in their order."""

    t: int
    observation: str
    action: str
    valid: bool
    reward: float
    advantage: tuple[float, ...]
    matches: tuple[ShownMatch, ...]

    @property
    def disputed(self) -> bool:
        """Whether some two methods give it opposite signs."""
        return min(self.advantage) < 0 < max(self.advantage)


@dataclass(frozen=True, slots=True)
class ShownTrajectory:
    """A trajectory as the page shows it.

    Attributes:
        update: Its update.
        facts: Its names.
        success: Whether it solved its task.
        steps: In time order.
        disagreement: Mean over steps of `eval.replay.disagreement.sign_distance`.
        spread: Mean over steps of `eval.replay.disagreement.spread`.
    """

    update: int
    facts: Facts
    success: bool
    steps: Sequence[ShownStep]
    disagreement: float
    spread: float


class Selection:
    """The trajectories that methods disagree about most, successes and failures half and half if possible."""

    def __init__(self, most: int) -> None:
        self._most = most  # kept of each outcome, since the other may have too few
        self._heaps: dict[bool, list[tuple[tuple[float, float, int], ShownTrajectory]]] = {
            True: [],
            False: [],
        }
        self._seen = 0

    def add(
        self,
        recorded: Recorded,
        methods: Sequence[Method],
        results: Sequence[CreditResult],
        advantages: np.ndarray,
    ) -> None:
        table = recorded.table
        numbers, where = np.unique(table.trajectory, return_inverse=True)
        length = np.bincount(where)
        # rounded, so that the order of summation makes no difference
        signs = np.round(np.bincount(where, sign_distance(advantages)) / length, 12)
        spreads = np.round(np.bincount(where, spread(advantages)) / length, 12)
        rows = np.split(np.lexsort((table.t, where)), np.cumsum(length)[:-1])
        for i, number in enumerate(numbers.tolist()):
            rank = (float(signs[i]), float(spreads[i]), -self._seen)  # of equals, the first
            self._seen += 1
            success = bool(table.success[rows[i][0]])
            heap = self._heaps[success]
            if len(heap) == self._most and rank < heap[0][0]:
                continue
            view = ShownTrajectory(
                recorded.update,
                recorded.facts[number],
                success,
                [_step(recorded, methods, results, advantages, row) for row in rows[i].tolist()],
                *rank[:2],
            )
            push = heapq.heappush if len(heap) < self._most else heapq.heappushpop
            push(heap, (rank, view))

    def best(self) -> list[ShownTrajectory]:
        """Returns `most` of those added (all, if there were fewer), the most disputed first."""
        won, lost = (sorted(heap, key=_rank, reverse=True) for heap in self._heaps.values())
        successes = min(len(won), max(self._most - len(lost), (self._most + 1) // 2))
        both = won[:successes] + lost[: self._most - successes]
        return [view for _, view in sorted(both, key=_rank, reverse=True)]


def _rank(item: tuple[tuple[float, float, int], ShownTrajectory]) -> tuple[float, float, int]:
    return item[0]


def _step(
    recorded: Recorded,
    methods: Sequence[Method],
    results: Sequence[CreditResult],
    advantages: np.ndarray,
    row: int,
) -> ShownStep:
    table = recorded.table
    matches = [
        _match(method.name, stage.name(), result.columns, recorded.facts, row)
        for method, result in zip(methods, results, strict=True)
        for stage in method.pipeline.stages
        if {"sibling", "sibling_t"} <= set(stage.columns_doc)
    ]
    return ShownStep(
        t=int(table.t[row]),
        observation=table.observation[row],
        action=table.action[row],
        valid=bool(table.valid[row]),
        reward=float(table.reward[row]),
        advantage=tuple(advantages[:, row].tolist()),
        matches=tuple(match for match in matches if match is not None),
    )


def _match(
    method: str, stage: str, columns: Mapping[str, np.ndarray], facts: Mapping[int, Facts], row: int
) -> ShownMatch | None:
    """A stage that matches steps says so in its columns `sibling`, `sibling_t` and perhaps `similarity`."""
    sibling, t = columns.get(f"{stage}.sibling"), columns.get(f"{stage}.sibling_t")
    if sibling is None or t is None or t[row] < 0:
        return None
    similarity = columns.get(f"{stage}.similarity")
    return ShownMatch(
        method,
        facts[int(sibling[row])].index,
        int(t[row]),
        None if similarity is None else float(similarity[row]),
    )
