"""Splits a rollout over processes: each plays its share of the groups, and all get the whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from agent.ranks import Ranks
from agent.rollout.groups import RolloutCounts, RolloutError
from agent.rollout.options import Progress
from agent.rollout.rollout import Rollout
from agent.types import Group
from envs.base import EnvError


def play_shared(
    count: int, make: Callable[[Sequence[int]], Rollout], ranks: Ranks
) -> tuple[list[Group], RolloutCounts]:
    """Plays `count` groups, every `ranks.size`-th of them here.

    What a group plays like depends on its number or name alone, so it does not matter who plays it, but for
    the last bits of batched arithmetic.

    Args:
        count: Groups over all ranks, the same on every rank.
        make: Returns the rollout of the groups with these places among the `count`.
        ranks: The processes that share it.

    Returns:
        All groups in order of their numbers, without those that failed, and what was counted on all ranks.

    Raises:
        RolloutError: the rollout of some rank ended with an `EnvError`; all raise, naming all of them.
    """
    running = make(range(ranks.rank, count, ranks.size))
    if ranks.size == 1:
        return running.play(), running.counts
    groups: list[Group] = []
    trouble = None
    try:
        groups = running.play()
    except EnvError as error:
        trouble = f"rank {ranks.rank}: {error}"
    everything = ranks.gather((groups, running.counts, trouble))
    troubles = [trouble for _, _, trouble in everything if trouble]
    if troubles:
        raise RolloutError("; ".join(troubles))
    counts = RolloutCounts()
    for _, counted, _ in everything:
        counts.add(counted)
    played = [group for share, _, _ in everything for group in share]
    return sorted(played, key=lambda group: group[0].group), counts


def scaled(on_progress: Progress | None, ranks: Ranks) -> Progress | None:
    """Tells of all ranks as if they were where this one is."""
    if on_progress is None or ranks.size == 1:
        return on_progress
    return lambda done, sampled: on_progress(done * ranks.size, sampled * ranks.size)
