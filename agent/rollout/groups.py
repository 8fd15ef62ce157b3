"""Which group plays next, and what happens to a group whose environments fail."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from agent.types import Group, Trajectory
from configs.seeds import derive
from envs.base import EnvError, Task

OnFailure = Literal["stop", "drop", "reroll"]
"""What a failed environment costs: the rollout, its trajectory, or its group, which is played again."""

OnGroup = Callable[[Group], int | None]
"""Told of every complete group; returns the number of the first group that nobody needs any more, or None."""


@dataclass(frozen=True, slots=True)
class Part:
    """The share of a rollout that one of several processes plays.

    Trajectories are dealt out one by one, so that all parts have members of all groups: a group's members are
    alike in length, groups are not. `whole` deals out whole groups, where somebody has to see all of a group
    while it is played.
    """

    rank: int = 0
    size: int = 1
    whole: bool = False

    def members(self, place: int, group_size: int) -> list[int]:
        """Which members of the group at this place among all belong to this part."""
        if self.whole:
            return list(range(group_size)) if place % self.size == self.rank else []
        first = place * group_size
        return [k for k in range(group_size) if (first + k) % self.size == self.rank]


MAX_REROLLS = 2
"""Times a group is played again; then it is given up."""


class RolloutError(EnvError):
    """An environment failed where that ends the rollout."""


@dataclass(frozen=True, slots=True)
class Seat:
    """A member of a group: which task, which member, and the how many-th attempt of the group."""

    group: int
    index: int
    attempt: int = 0


@dataclass(slots=True)
class RolloutCounts:
    """What a rollout did besides playing.

    Attributes:
        failed: Trajectories that failed, by reason.
        rerolled: Groups played again.
        dropped: Group's number → (its members that failed, task id, last message), while it is not known
            whether enough members are left: other processes play the rest of the group.
        lost: Task id → message, of groups given up.
        stopped: Groups stopped, or left out, since nobody needed them.
        unplayed: Tokens sampled that are in no step of the groups returned.
    """

    failed: Counter[str] = field(default_factory=Counter)
    rerolled: int = 0
    dropped: dict[int, tuple[int, str, str]] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)
    stopped: int = 0
    unplayed: int = 0

    def add(self, other: RolloutCounts) -> None:
        """Takes another rollout's into this."""
        self.failed.update(other.failed)
        self.lost.update(other.lost)
        for number, (failed, task, message) in other.dropped.items():
            self.dropped[number] = (failed + self.dropped.get(number, (0, "", ""))[0], task, message)
        self.rerolled += other.rerolled
        self.stopped += other.stopped
        self.unplayed += other.unplayed


def enough(left: int, group_size: int) -> bool:
    """Whether a group of which so many members are left has something to compare."""
    return left >= min(2, group_size)


@dataclass(slots=True)
class _Members:
    """Of a group: how many play here, those that ended, by index, and how many failed."""

    here: int
    ended: dict[int, Trajectory] = field(default_factory=dict)
    failed: int = 0
    attempt: int = 0
    closed: bool = False


class Roster:
    """The groups of a rollout.

    A group's members start next to one another, so that they share their prompt's computation; a group that
    is played again starts before any other that has not begun.

    A failure costs by `on_failure`:
        stop: the rollout.
        drop: the trajectory. A group that cannot have two members any more (one, where groups have one) has
            nothing to compare and is given up: those of it in flight are abandoned (where other processes
            play the rest of the group, they decide together, at the end: `over_ranks`).
        reroll: the group. It is played again from the same initial state with other draws of the policy,
            `MAX_REROLLS` times, then given up. So groups are whole, and no member is chosen by its luck.

    Args:
        tasks: One per group.
        group_size: Members of a group.
        seed: Everything random derives from it and from (name, index).
        numbers: Of the groups, one per task, ascending; None: from 0.
        names: One per task, in place of the group's number in its seeds.
        on_failure: See above.
        on_group: See `OnGroup`; what it makes superfluous is abandoned, and left out even where it has ended
            (else quick trajectories would be more likely to count).
        part: What is played here; all of it has to be whole groups for `on_group` and `reroll`.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        group_size: int,
        *,
        seed: int,
        numbers: Sequence[int] | None = None,
        names: Sequence[str] | None = None,
        on_failure: OnFailure = "stop",
        on_group: OnGroup | None = None,
        part: Part | None = None,
    ) -> None:
        part = part or Part()
        if part.size > 1 and not part.whole and (on_group or on_failure == "reroll"):
            raise ValueError("a part without whole groups can neither report groups nor play them again")
        self._split = part.size > 1 and not part.whole
        self.counts = RolloutCounts()
        self.done = 0
        self._tasks, self._size, self._seed = tasks, group_size, seed
        self._numbers = range(len(tasks)) if numbers is None else numbers
        self._names = names or self._numbers
        self._on_failure, self._on_group = on_failure, on_group
        members = [part.members(g, group_size) for g in range(len(tasks))]
        self._groups = [_Members(len(some)) for some in members]
        self._waiting = deque(Seat(g, k) for g, some in enumerate(members) for k in some)
        self._needed = len(tasks)

    @property
    def waiting(self) -> bool:
        """Whether somebody has not started."""
        return bool(self._waiting)

    def next(self) -> tuple[Seat, Trajectory, int]:
        """The next to start: its seat, its empty record, and its environment's seed."""
        seat = self._waiting.popleft()
        task, name = self._tasks[seat.group], self._names[seat.group]
        again = ("again", seat.attempt) if seat.attempt else ()
        record = Trajectory(
            task_id=task.id,
            family=task.family,
            instruction="",
            group=self._numbers[seat.group],
            index=seat.index,
            seed=derive(self._seed, "trajectory", name, seat.index, *again),
        )
        return seat, record, derive(self._seed, "env", name)

    def task(self, seat: Seat) -> Task:
        """The task of a seat."""
        return self._tasks[seat.group]

    def wants(self, seat: Seat) -> bool:
        """Whether a trajectory in flight is still of use."""
        group = self._groups[seat.group]
        return not group.closed and group.attempt == seat.attempt

    def ended(self, seat: Seat, trajectory: Trajectory) -> None:
        """Takes a trajectory that has ended."""
        group = self._groups[seat.group]
        group.ended[seat.index] = trajectory
        self.done += 1
        self._complete(seat.group)

    def failed(self, seat: Seat, reason: str, message: str) -> None:
        """Takes a failure; afterwards some seats in flight may be wanted no more, see `wants`.

        Raises:
            RolloutError: `on_failure` is `stop`.
        """
        if self._on_failure == "stop":
            raise RolloutError(
                f"{message} ({reason}; member {seat.index} of group {self._numbers[seat.group]}). To go on "
                "without it, set rollout.on_failure to drop or reroll"
            )
        group = self._groups[seat.group]
        self.counts.failed[reason] += 1
        group.failed += 1
        if self._on_failure == "reroll" and group.attempt < MAX_REROLLS:
            self.counts.rerolled += 1
            self._clear(seat.group)
            self._groups[seat.group] = _Members(group.here, attempt=group.attempt + 1)
            again = [Seat(seat.group, k, group.attempt + 1) for k in range(self._size)]
            self._waiting.extendleft(reversed(again))
        elif self._split:
            self.counts.dropped[self._numbers[seat.group]] = (
                group.failed,
                self._tasks[seat.group].id,
                f"{reason}: {message}",
            )
            self._complete(seat.group)
        elif self._on_failure == "reroll" or not enough(self._size - group.failed, self._size):
            self.counts.lost[self._tasks[seat.group].id] = f"{reason}: {message}"
            self._clear(seat.group)
            group.closed = True
        else:
            self._complete(seat.group)

    def groups(self) -> list[Group]:
        """The groups played, in order, members by index; without those given up or not needed."""
        return [
            [group.ended[k] for k in sorted(group.ended)]
            for group in self._groups[: self._needed]
            if group.ended
        ]

    def _complete(self, number: int) -> None:
        """Closes a group whose last member is there, and asks whether later groups are still needed."""
        group = self._groups[number]
        if len(group.ended) + group.failed < group.here:
            return
        group.closed = True
        if self._on_group is None or number >= self._needed:
            return
        first_idle = self._on_group([group.ended[k] for k in sorted(group.ended)])
        needed = self._needed if first_idle is None else bisect_left(self._numbers, first_idle)
        if needed < self._needed:
            for later in range(needed, self._needed):
                self._clear(later)
                self._groups[later].closed = True
                self.counts.stopped += 1
            self._needed = needed

    def _clear(self, number: int) -> None:
        """Forgets what a group has played and whom it waits for."""
        self.done -= len(self._groups[number].ended)
        self._groups[number].ended.clear()
        self._waiting = deque(seat for seat in self._waiting if seat.group != number)
