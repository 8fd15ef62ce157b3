"""The groups of an update: further tasks are rolled out for groups that the credit method's filters drop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agent.policy import Policy, Sampling
from agent.rollout import Progress, rollout
from agent.types import Group
from credit.base import Filter
from rl.assemble import step_table
from rl.metrics import rollout_metrics
from rl.plan import Play
from rl.tasks import draw


@dataclass(frozen=True, slots=True)
class Collected:
    """What an update rolled out.

    Attributes:
        groups: Those to train on, in the order they were drawn in.
        extra_tasks: Tasks played beyond `Play.groups`.
        metrics: `rollout/…`, over all that was played.
    """

    groups: list[Group]
    extra_tasks: int
    metrics: dict[str, float]


def collect(
    policy: Policy,
    play: Play,
    filters: Sequence[Filter] = (),
    *,
    position: int,
    seed: int,
    on_progress: Progress | None = None,
) -> Collected:
    """Rolls out until `play.groups` groups pass all filters, or the tries are used up.

    The first try plays `play.groups` tasks, and so does every other unless the first filter's `refill` is
    `missing`, the default: as many as are missing then. The last try (the smallest `max_batches` among the
    filters; 1 without any) is not filtered, but what passes goes first. More groups than `play.groups`, which
    whole batches may give, are cut, unless `refill` is `batch_all`.

    A group's number is its task's place in the order of draws over the run, so numbers are unique, and
    seeds, which derive from them, depend neither on what was dropped nor on what ended first.

    Args:
        policy: Samples.
        play: Tasks, environments and sampling.
        filters: Of the credit method.
        position: Tasks drawn before these, over the run.
        seed: Of the run.
        on_progress: Called with (trajectories done, tokens sampled) over all tries.

    Returns:
        At least `play.groups` groups, of `play.groups + extra_tasks` tasks drawn.
    """
    refill = filters[0].refill if filters else "missing"
    tries = min((f.max_batches for f in filters), default=1)
    passed: list[Group] = []
    spare: list[Group] = []
    played: list[Group] = []
    batches = 0
    while len(passed) + len(spare) < play.groups:
        missing = play.groups - len(passed)
        batch = rollout(
            policy,
            Sampling(play.temperature),
            play.make_env,
            draw(
                play.tasks,
                missing if refill == "missing" else play.groups,
                position=position + len(played),
                seed=seed,
            ),
            group_size=play.group_size,
            prompts=play.prompts,
            max_parallel=play.max_parallel,
            seed=seed,
            group_offset=position + len(played),
            on_progress=_continued(on_progress, played),
        )
        batches += 1
        played += batch
        passing = _passing(batch, filters, play.success_reward)
        passed += [group for group in batch if group[0].group in passing]
        if batches == tries:
            spare = [group for group in batch if group[0].group not in passing]
    chosen = passed + spare
    if refill != "batch_all":
        chosen = chosen[: play.groups]
    chosen.sort(key=lambda group: group[0].group)
    metrics = {
        **rollout_metrics(played),
        "rollout/batches": float(batches),
        "rollout/dropped_groups": float(len(played) - len(chosen)),
    }
    return Collected(chosen, len(played) - play.groups, metrics)


def _passing(batch: Sequence[Group], filters: Sequence[Filter], success_reward: float) -> set[int]:
    """Numbers of the groups that every filter keeps."""
    numbers = {group[0].group for group in batch}
    if filters:
        table = step_table(batch, success_reward=success_reward)
        for one in filters:
            numbers -= set(table.group[~one.keep(table)].tolist())
    return numbers


def _continued(on_progress: Progress | None, played: Sequence[Group]) -> Progress | None:
    """Counts on from what was played before."""
    if on_progress is None:
        return None
    before = sum(len(group) for group in played)
    tokens = sum(trajectory.tokens_sampled for group in played for trajectory in group)
    return lambda done, sampled: on_progress(before + done, tokens + sampled)
