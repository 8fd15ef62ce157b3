"""The groups of an update: further tasks are rolled out for groups that the credit method's filters drop."""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass

from agent.policy import Policy, Sampling
from agent.rollout.groups import OnGroup, Part, RolloutCounts, RolloutError
from agent.rollout.options import Progress
from agent.rollout.over_ranks import play_shared, scaled
from agent.rollout.rollout import Rollout
from agent.types import Group
from credit.base import Filter
from rl.rows.assemble import token_rows
from rl.settings import RolloutSettings
from rl.task_order import draw
from rl.tracking.metrics import count_metrics, rollout_metrics


@dataclass(frozen=True, slots=True)
class Collected:
    """What an update rolled out.

    Attributes:
        groups: Those to train on, in the order they were drawn in.
        extra_tasks: Tasks drawn beyond `RolloutSettings.groups`, those whose groups failed among them.
        metrics: `rollout/…`, over all that was played.
    """

    groups: list[Group]
    extra_tasks: int
    metrics: dict[str, float]


def collect(
    policy: Policy,
    settings: RolloutSettings,
    filters: Sequence[Filter] = (),
    *,
    position: int,
    seed: int,
    on_progress: Progress | None = None,
) -> Collected:
    """Rolls out until `settings.groups` groups pass all filters, or the tries are used up.

    The first try plays `settings.groups` tasks, and so does every other unless the first filter's `refill` is
    `missing`, the default: as many as are missing then. The last try (the smallest `max_batches` among the
    filters; 1 without any) is not filtered, but what passes goes first. More groups than `settings.groups`,
    which whole batches may give, are cut, unless `refill` is `batch_all`. Groups that failed are replaced by
    the next tasks, also after the last try.

    A group's number is its task's place in the order of draws over the run, so numbers are unique, and
    seeds, which derive from them, depend neither on what was dropped nor on what ended first.

    `settings.early_stop` changes nothing but the work done: with `refill: batch` the groups are cut in order
    of their numbers, so once enough groups have passed, all behind the last of them can be stopped. It relies
    on filters that judge each group by itself, as all of `credit/` do. Without filters, or where only what is
    missing is played, every group counts and none is ever stopped. Stopping a group for its own trajectories
    would not be sound: those that are decided early are the easy ones and the hopeless ones.

    Args:
        policy: Samples.
        settings: Tasks, environments and sampling.
        filters: Of the credit method.
        position: Tasks drawn before these, over the run.
        seed: Of the run.
        on_progress: Called with (trajectories done, tokens sampled) over all tries.

    Returns:
        At least `settings.groups` groups, of `settings.groups + extra_tasks` tasks drawn.

    Raises:
        RolloutError: an environment failed and that ends the rollout, or every group of a try failed.
    """
    refill = filters[0].refill if filters else "missing"
    tries = min((f.max_batches for f in filters), default=1)
    passed: list[Group] = []
    left_over: list[Group] = []
    played: list[Group] = []
    counts = RolloutCounts()
    batches = drawn = 0
    stops_early = settings.early_stop and refill == "batch"
    while len(passed) + len(left_over) < settings.groups:
        missing = settings.groups - len(passed) - len(left_over)
        count = missing if refill == "missing" or batches >= tries else settings.groups
        batch, counted = _play(
            policy,
            settings,
            range(position + drawn, position + drawn + count),
            seed=seed,
            on_group=_Enough(settings, filters, missing) if stops_early else None,
            on_progress=_continued(on_progress, played),
        )
        batches, drawn = batches + 1, drawn + count
        counts.add(counted)
        if not batch:
            raise RolloutError(f"none of {count} groups could be played: {'; '.join(counted.lost.values())}")
        played += batch
        passing = _passing(batch, filters, settings)
        passed += [group for group in batch if group[0].group in passing]
        if batches >= tries:
            left_over += [group for group in batch if group[0].group not in passing]
    chosen = passed + left_over
    if refill != "batch_all":
        chosen = chosen[: settings.groups]
    chosen.sort(key=lambda group: group[0].group)
    metrics = {
        **rollout_metrics(played),
        **count_metrics(counts),
        "rollout/batches": float(batches),
        "rollout/dropped_groups": float(len(played) - len(chosen)),
    }
    return Collected(chosen, drawn - settings.groups, metrics)


def _play(
    policy: Policy,
    settings: RolloutSettings,
    numbers: range,
    *,
    seed: int,
    on_group: OnGroup | None,
    on_progress: Progress | None,
) -> tuple[list[Group], RolloutCounts]:
    """Plays the groups with these numbers, together with the other ranks."""
    tasks = draw(settings.tasks, len(numbers), position=numbers.start, seed=seed)

    def share(part: Part) -> Rollout:
        return Rollout(
            policy,
            Sampling(settings.temperature),
            settings.environments,
            tasks,
            group_size=settings.group_size,
            prompts=settings.prompts,
            max_parallel=settings.max_parallel,
            seed=seed,
            numbers=numbers,
            part=part,
            options=settings.options,
            steering=settings.steering,
            on_group=on_group,
            on_progress=scaled(on_progress, settings.ranks, policy),
        )

    whole = on_group is not None or settings.options.on_failure == "reroll"
    return play_shared(share, settings.ranks, settings.group_size, policy=policy, whole=whole)


class _Enough:
    """Says which groups of a batch are not needed, since `missing` of those before them have passed.

    It knows the groups of its own rank, so with several it says so later, never wrongly.
    """

    def __init__(self, settings: RolloutSettings, filters: Sequence[Filter], missing: int) -> None:
        self._filters, self._settings, self._missing = filters, settings, missing
        self._passing: list[int] = []

    def __call__(self, group: Group) -> int | None:
        for number in _passing([group], self._filters, self._settings):
            insort(self._passing, number)
        return self._passing[self._missing - 1] + 1 if len(self._passing) >= self._missing else None


def _passing(batch: Sequence[Group], filters: Sequence[Filter], settings: RolloutSettings) -> set[int]:
    """Numbers of the groups that every filter keeps."""
    numbers = {group[0].group for group in batch}
    if filters:
        table = settings.table(batch, token_rows(batch, mask_truncated=settings.mask_truncated))
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
