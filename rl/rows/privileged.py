"""Token rows with a privileged context: the same responses, as seen by one who knows more.

The context opens the row's first user message, where a chat model reads what a task comes with. Recorded ids
are never changed or tokenised again; the context's ids go between the message's opening and its text, and the
spans move by their number. Every row of a trajectory gets the context: the one row of the append form, each
restarted row of it, each step's row of the step-wise form.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Literal

import numpy as np

from agent.prompts.builder import PromptBuilder
from agent.types import Group, Trajectory
from configs.seeds import derive
from rl.rows.assemble import TokenRow

Peer = Literal["random", "shortest", "longest"]

PRIVILEGED = ("logp_peer", "logp_hindsight")
"""Token columns whose measuring gives rows a context of their own."""

# No text begins with white space, which might melt into one token with the line break before it.
PEER_OPENING = "Another attempt at this very task, which succeeded:\n"
PEER_STEP = "Observation: {observation}\nAction: {action}\n"
PEER_END = "End of that attempt.\n\n"
HINDSIGHT = "Known of this attempt: it {ends}, and the last observation is:\n{observation}\n"
HINDSIGHT_END = "End of what is known.\n\n"


@dataclass(frozen=True, slots=True)
class Privileged:
    """Rows with their context.

    Attributes:
        rows: One a given row, None where it has no context.
        trimmed: Rows whose context lost steps to the window.
        no_room: Rows without a context because not even its shortest form fits the window.
    """

    rows: list[TokenRow | None]
    trimmed: int
    no_room: int


@dataclass(frozen=True, slots=True)
class _Context:
    """Token ids of a context; `parts` may be dropped whole, from the beginning, but not all of them."""

    opening: list[int]
    parts: list[list[int]]
    end: list[int]

    def within(self, room: int) -> tuple[list[int] | None, bool]:
        """The longest form of at most `room` tokens (None: there is none), and whether parts are missing."""
        left = room - len(self.opening) - len(self.end)
        first = len(self.parts)
        while first and len(self.parts[first - 1]) <= left:
            first -= 1
            left -= len(self.parts[first])
        if first == len(self.parts):
            return None, False
        return [*self.opening, *chain.from_iterable(self.parts[first:]), *self.end], first > 0


class _Messages:
    """The prompts' first user message: where its text begins, and the ids of texts put there."""

    def __init__(self, prompts: PromptBuilder) -> None:
        self.encode = prompts.turns.encode
        self._empty = prompts.turns.first(prompts.template.system, "")

    def begins(self, ids: Sequence[int]) -> int:
        """Where the message's text begins in the ids of a row."""
        same = (a == b for a, b in zip(ids, self._empty, strict=False))
        return next((i for i, equal in enumerate(same) if not equal), min(len(ids), len(self._empty)))


def peer_rows(
    rows: Sequence[TokenRow],
    groups: Sequence[Group],
    prompts: PromptBuilder,
    *,
    window: int,
    which: Peer,
    seed: int,
) -> Privileged:
    """Puts a successful sibling's trajectory (observations and actions) into the context of every row.

    Args:
        rows: From `rl.rows.assemble.token_rows` of `groups`.
        groups: A success never gets its own text; where a group has no (other) success, no row gets one.
        prompts: As in the rollout.
        window: Longest row with its context (tokens). A sibling's text loses whole steps, first ones first.
        which: The sibling among the group's other successes; ties go to the lowest index.
        seed: Of the run, for `random`.
    """
    messages = _Messages(prompts)
    contexts: dict[tuple[int, int], _Context] = {}

    def context(trajectory: Trajectory, others: Sequence[Trajectory]) -> _Context | None:
        peer = _choose(trajectory, others, which, seed)
        if peer is None:
            return None
        place = (peer.group, peer.index)
        if place not in contexts:
            steps = [
                messages.encode(PEER_STEP.format(observation=s.observation.text, action=s.action))
                for s in peer.steps
            ]
            contexts[place] = _Context(messages.encode(PEER_OPENING), steps, messages.encode(PEER_END))
        return contexts[place]

    return _with_contexts(rows, groups, messages, context, window)


def hindsight_rows(
    rows: Sequence[TokenRow], groups: Sequence[Group], prompts: PromptBuilder, *, window: int
) -> Privileged:
    """Puts the trajectory's own outcome and last observation into the context of every row.

    Arguments are those of `peer_rows`.
    """
    messages = _Messages(prompts)

    def context(trajectory: Trajectory, _: Sequence[Trajectory]) -> _Context:
        ends = "ends in success" if trajectory.success else "ends without success"
        known = HINDSIGHT.format(ends=ends, observation=trajectory.steps[-1].next_observation.text)
        return _Context([], [messages.encode(known)], messages.encode(HINDSIGHT_END))

    return _with_contexts(rows, groups, messages, context, window)


def _with_contexts(
    rows: Sequence[TokenRow],
    groups: Sequence[Group],
    messages: _Messages,
    context: Callable[[Trajectory, Sequence[Trajectory]], _Context | None],
    window: int,
) -> Privileged:
    """`context` is asked once per trajectory, with the trajectory's group."""
    members: dict[int, list[Trajectory]] = {}
    for trajectory in sorted(chain.from_iterable(groups), key=lambda tr: (tr.group, tr.index)):
        members.setdefault(trajectory.group, []).append(trajectory)
    known = [context(trajectory, group) for group in members.values() for trajectory in group]
    result: list[TokenRow | None] = []
    trimmed = no_room = 0
    for row in rows:
        found = known[row.trajectory]
        ids, shorter = found.within(window - len(row.ids)) if found else (None, False)
        trimmed += shorter
        no_room += found is not None and ids is None
        result.append(None if ids is None else _insert(row, ids, messages.begins(row.ids)))
    return Privileged(result, trimmed, no_room)


def _insert(row: TokenRow, context: list[int], at: int) -> TokenRow:
    ids_L = np.concatenate([row.ids[:at], np.asarray(context, dtype=row.ids.dtype), row.ids[at:]])
    spans = tuple((start + len(context), end + len(context), step) for start, end, step in row.spans)
    return replace(row, ids=ids_L, spans=spans)


def _choose(trajectory: Trajectory, group: Sequence[Trajectory], which: Peer, seed: int) -> Trajectory | None:
    others = [tr for tr in group if tr.success and tr.index != trajectory.index]
    if not others:
        return None
    if which == "random":
        rng = np.random.default_rng(derive(seed, "peer", trajectory.group, trajectory.index))
        return others[int(rng.integers(len(others)))]
    return sorted(others, key=lambda tr: len(tr.steps), reverse=which == "longest")[0]
