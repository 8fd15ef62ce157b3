"""For ProVer: which stretch of a success to test by playing on from before and from after it, and the result.

If more continuations succeed from the state after the stretch than from the state before it, the stretch was
worth something. `candidates` chooses stretches; a `Continuations` service plays and measures. Steps of a
stretch are start <= t < end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from credit.table import StepTable

PROPOSERS = ("first_divergence", "random", "judge")

Judge = Callable[[StepTable, range, Sequence[range]], tuple[int, int] | None]
"""(table, rows of the success, rows of each failed sibling) → (start, end) in steps, None: no proposal."""


@dataclass(frozen=True)
class Candidate:
    """A stretch to verify.

    Attributes:
        trajectory: `StepTable.trajectory` of a success.
        start: its first step, >= 0.
        end: the step after its last one; at most the trajectory's last step, which is never part of it.
    """

    trajectory: int
    start: int
    end: int


@dataclass(frozen=True)
class Segment:
    """A verified stretch.

    Attributes:
        trajectory: as in `Candidate`.
        start: as in `Candidate`.
        end: as in `Candidate`.
        gain: after - before.
        before: share of successes among continuations from the state before step `start`.
        after: the same from the state before step `end`.
        samples: continuations played from each of the two states.
    """

    trajectory: int
    start: int
    end: int
    gain: float
    before: float
    after: float
    samples: int


class Continuations(Protocol):
    """The service `continuations`: plays on from states of recorded trajectories with the current policy."""

    def segments(self, table: StepTable, candidates: Sequence[Candidate], samples: int) -> Sequence[Segment]:
        """Measures candidates with `samples` continuations from each of their two states.

        Returns:
            One segment a candidate, in any order; a candidate that could not be continued may be missing.
        """
        ...


def candidates(
    table: StepTable,
    *,
    proposer: str,
    min_successes: int,
    max_successes: int,
    max_steps: int,
    rng: Callable[[str], np.random.Generator],
    judge: Judge | None = None,
) -> list[Candidate]:
    """At most one stretch a group, of its shortest success (ties: by the trajectories' texts, never by ids).

    - `first_divergence`: from the first step at which the success leaves the path of the failed sibling that
      shares the most steps (same anchors and actions) with it;
    - `random`: any first step, then any length;
    - `judge`: whatever the judge says; an answer that is no such stretch counts as no proposal.

    The last step is never in it: what follows is the outcome itself, and nothing can be continued.

    Args:
        table: canonical.
        proposer: see above.
        min_successes: fewest successes of an eligible group, which also has a failure.
        max_successes: most of them.
        max_steps: longest stretch.
        rng: a generator by purpose (`Context.rng`).
        judge: for proposer judge.
    """
    found = []
    for successes, failures in _groups(table):
        if not failures or not min_successes <= len(successes) <= max_successes:
            continue
        chosen = min(successes, key=lambda rows: (len(rows), _texts(table, rows)))
        last = len(chosen) - 1
        if proposer == "judge":
            proposal = judge(table, chosen, failures)
        elif proposer == "random":
            proposal = _draw(last, max_steps, rng("prover/segment/" + "\n".join(_texts(table, chosen))))
        else:
            start = max(_shared(table, chosen, failed) for failed in failures)
            proposal = (start, min(start + max_steps, last))
        if proposal and 0 <= proposal[0] < proposal[1] <= min(last, proposal[0] + max_steps):
            found.append(Candidate(int(table.trajectory[chosen.start]), int(proposal[0]), int(proposal[1])))
    return found


def _groups(table: StepTable) -> Iterator[tuple[list[range], list[range]]]:
    """Rows of the successes and of the failures of each group."""
    start = table.trajectory_start
    group = table.group_index[start[:-1]]
    for members in np.split(np.arange(len(group)), np.flatnonzero(np.diff(group)) + 1):
        rows = [range(start[k], start[k + 1]) for k in members]
        won = [bool(table.success[r.start]) for r in rows]
        yield (
            [r for r, ok in zip(rows, won, strict=True) if ok],
            [r for r, ok in zip(rows, won, strict=True) if not ok],
        )


def _texts(table: StepTable, rows: range) -> tuple[str, ...]:
    return (*table.anchor[rows], *table.observation[rows], *table.action[rows])


def _shared(table: StepTable, first: range, second: range) -> int:
    """Steps both begin with: same anchors, same actions."""
    n = min(len(first), len(second))
    a, b = slice(first.start, first.start + n), slice(second.start, second.start + n)
    differ = (table.anchor[a] != table.anchor[b]) | (table.action[a] != table.action[b])
    return int(np.append(np.flatnonzero(differ), n)[0])


def _draw(last: int, max_steps: int, rng: np.random.Generator) -> tuple[int, int] | None:
    if last < 1:
        return None
    start = int(rng.integers(last))
    return start, start + 1 + int(rng.integers(min(max_steps, last - start)))
