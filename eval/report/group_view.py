"""One group of trajectories with the credit of every step, read from a run's parquet files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

# Columns that say how a step came to its advantage; which of them exist depends on the credit method.
SIBLING, SIBLING_T, SIMILARITY = "scpo.sibling", "scpo.sibling_t", "scpo.similarity"
CREDIT, BONUS = "scpo.credit", "scpo.bonus"
_CREDIT = (SIBLING, SIBLING_T, SIMILARITY, CREDIT, BONUS)
_COLUMNS = [
    "update",
    "task_id",
    "family",
    "instruction",
    "group",
    "trajectory",
    "index",
    "t",
    "success",
    "truncated",
    "observation",
    "anchor",
    "thought",
    "action",
    "well_formed",
    "admissible",
    "valid",
    "reward",
    "return",
    "advantage",
]
_PAIRS = 3


@dataclass(frozen=True)
class GroupStep:
    """A step as the report shows it; None where the credit method has no such figure.

    Attributes:
        t: Position in the trajectory.
        observation: What the agent saw.
        thought: Text inside `<think>`, "" if none.
        action: Parsed command.
        well_formed: The response had the required tags.
        admissible: The action was in the environment's list.
        valid: Both, or what the run's parser took for it.
        reward: Environment reward of the step.
        before: Return before shaping, if the method recorded it.
        after: Return the estimator saw, NaN for a method without returns.
        credit: SCPO's r in [0, 1], 0 for a step without a match.
        match: (index of the sibling, its t) of the matched step.
        similarity: Of the matched steps, in [0, 1].
        advantage: What the loss multiplies.
        peers: Rows of the group with the same anchor, this one included.
    """

    t: int
    observation: str
    thought: str
    action: str
    well_formed: bool
    admissible: bool
    valid: bool
    reward: float
    before: float | None
    after: float
    credit: float | None
    match: tuple[int, int] | None
    similarity: float | None
    advantage: float
    peers: int


@dataclass(frozen=True)
class Member:
    """One trajectory of the group."""

    index: int
    success: bool
    truncated: bool
    steps: Sequence[GroupStep]

    @property
    def matched(self) -> int:
        """Steps credited through a sibling."""
        return sum(step.match is not None for step in self.steps)


@dataclass(frozen=True)
class GroupView:
    """A group and which of its members to show side by side.

    Attributes:
        update: Update it was rolled out for.
        group: Number of the group.
        task_id: Its task.
        family: The task's family.
        instruction: The task in words.
        members: All its trajectories, by index.
        pairs: (left, right): a success and a failed sibling, most credited first; in a group with one kind of
            outcome only, its first two members.
        largest: Largest |advantage| in the group (1 if all are 0); scales the colours.
    """

    update: int
    group: int
    task_id: str
    family: str
    instruction: str
    members: Sequence[Member]
    pairs: Sequence[tuple[Member, Member]]
    largest: float


def choose_group(files: Sequence[Path]) -> GroupView | None:
    """Picks the group that shows most about credit, from the newest file that has such a group.

    Preferred: a group with successes and failures whose failed steps are credited (most matches first);
    then one with both outcomes; then any.
    """
    fallback: tuple[tuple[int, int], Path, int] | None = None
    for path in reversed(files):
        rank, group = _best_group(path)
        if fallback is None or rank[0] > fallback[0][0]:
            fallback = rank, path, group
        if fallback[0][0] == 2:
            break
    return read_group(fallback[1], fallback[2]) if fallback else None


def read_group(path: Path, group: int) -> GroupView:
    """Reads one group of a parquet file."""
    known = pq.read_schema(path).names
    columns = [*_COLUMNS, *(name for name in _CREDIT if name in known)]
    rows = pq.read_table(path, columns=columns, filters=[("group", "=", group)]).to_pylist()
    rows.sort(key=itemgetter("index", "t"))
    member_of = {row["trajectory"]: row["index"] for row in rows}
    peers = Counter(row["anchor"] for row in rows)
    members = [_member(list(part), member_of, peers) for _, part in groupby(rows, key=itemgetter("index"))]
    first = rows[0]
    return GroupView(
        update=first["update"],
        group=group,
        task_id=first["task_id"],
        family=first["family"],
        instruction=first["instruction"],
        members=members,
        pairs=_pairs(members),
        largest=max(abs(step.advantage) for member in members for step in member.steps) or 1.0,
    )


def _best_group(path: Path) -> tuple[tuple[int, int], int]:
    """Returns ((kind, matches), group) of a file's best group; kind 2: credited, 1: both outcomes, 0: any."""
    known = pq.read_schema(path).names
    rows = pq.read_table(path, columns=[n for n in ("group", "success", SIBLING_T) if n in known]).to_pylist()
    rows.sort(key=itemgetter("group"))
    ranked = []
    for group, part in groupby(rows, key=itemgetter("group")):
        steps = list(part)
        mixed = len({step["success"] for step in steps}) == 2
        matches = sum(step.get(SIBLING_T, -1) >= 0 for step in steps)
        ranked.append(((2 if matches else int(mixed), matches), group))
    return max(ranked)


def _pairs(members: Sequence[Member]) -> list[tuple[Member, Member]]:
    """See `GroupView.pairs`."""
    successes = [member for member in members if member.success]
    failures = sorted((m for m in members if not m.success), key=lambda m: -m.matched)
    if not successes or not failures:
        return [(members[0], members[1])] if len(members) > 1 else [(members[0], members[0])]
    by_index = {member.index: member for member in members}
    longest = max(successes, key=lambda m: len(m.steps))
    pairs = []
    for failed in failures[:_PAIRS]:
        matched = [step.match[0] for step in failed.steps if step.match]
        pairs.append((by_index[matched[0]] if matched else longest, failed))
    return pairs


def _member(rows: Sequence[dict[str, Any]], member_of: dict[int, int], peers: Counter[str]) -> Member:
    first = rows[0]
    return Member(
        index=first["index"],
        success=first["success"],
        truncated=first["truncated"],
        steps=[_step(row, member_of, peers[row["anchor"]]) for row in rows],
    )


def _step(row: dict[str, Any], member_of: dict[int, int], peers: int) -> GroupStep:
    matched = row.get(SIBLING_T, -1) >= 0
    return GroupStep(
        t=row["t"],
        observation=row["observation"],
        thought=row["thought"],
        action=row["action"],
        well_formed=row["well_formed"],
        admissible=row["admissible"],
        valid=row["valid"],
        reward=row["reward"],
        before=row["return"] - row[BONUS] if BONUS in row else None,
        after=row["return"],
        credit=row.get(CREDIT),
        match=(member_of[row[SIBLING]], row[SIBLING_T]) if matched else None,
        similarity=row[SIMILARITY] if matched else None,
        advantage=row["advantage"],
        peers=peers,
    )
