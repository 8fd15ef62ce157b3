"""Splits a rollout over processes: each plays its share of the trajectories, and all get the whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext

from agent.policy import Policy
from agent.ranks import Ranks
from agent.rollout.groups import Part, RolloutCounts, RolloutError, enough
from agent.rollout.options import Progress
from agent.rollout.rollout import Rollout
from agent.team_policy import TeamPolicy
from agent.types import Group
from envs.base import EnvError


def play_shared(
    make: Callable[[Part], Rollout],
    ranks: Ranks,
    group_size: int,
    *,
    policy: Policy | None = None,
    whole: bool = False,
) -> tuple[list[Group], RolloutCounts]:
    """Plays a rollout, a part of its trajectories here.

    What a trajectory is like depends on its group's number or name and its index alone, so it does not matter
    who plays it, but for the last bits of batched arithmetic.

    Args:
        make: Returns the rollout of a part; on every rank of the same tasks.
        ranks: The processes that share it.
        group_size: Trajectories per task.
        policy: What `make`'s rollouts ask; where ranks hold it in teams, each team's first rank plays a share
            and the others follow. None: every rank plays.
        whole: Deal out whole groups, see `Part`.

    Returns:
        All groups in order of their numbers, without those that failed, and what was counted on all ranks.

    Raises:
        RolloutError: the rollout of some rank ended with an `EnvError`; all raise, naming all of them.
    """
    team = policy if isinstance(policy, TeamPolicy) else None
    size = team.size if team else 1
    running = make(Part(ranks.rank // size, ranks.size // size, whole))
    if ranks.size == 1:
        return running.play(), running.counts
    groups: list[Group] = []
    trouble = None
    try:
        if team and team.rank:
            team.follow()
        else:
            with team.leading() if team else nullcontext():
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
    return _whole([group for share, _, _ in everything for group in share], counts, group_size), counts


def _whole(parts: Sequence[Group], counts: RolloutCounts, group_size: int) -> list[Group]:
    """Puts the members of each group together; gives up groups that have lost too many of them."""
    members: dict[int, Group] = {}
    for part in parts:
        members.setdefault(part[0].group, []).extend(part)
    for number, (failed, task, message) in counts.dropped.items():
        if not enough(group_size - failed, group_size):
            counts.lost[task] = message
            counts.unplayed += sum(trajectory.tokens_sampled for trajectory in members.pop(number, []))
    counts.dropped.clear()
    return [sorted(members[number], key=lambda one: one.index) for number in sorted(members)]


def scaled(on_progress: Progress | None, ranks: Ranks, policy: Policy | None = None) -> Progress | None:
    """Tells of all ranks that play as if they were where this one is; `policy` as in `play_shared`."""
    shares = ranks.size // (policy.size if isinstance(policy, TeamPolicy) else 1)
    if on_progress is None or shares == 1:
        return on_progress
    return lambda done, sampled: on_progress(done * shares, sampled * shares)
