"""Continuations from the middle of recorded trajectories: how much a segment of one was worth.

    gain = mean success of K continuations from the state after the segment
           - mean success of K continuations from the state before it

all played by the current policy, with the prompts' history and the step limit as they were there. A state
is reached by playing the recorded actions again in the recorded task, every observation compared with the
recorded one; from there each continuation starts as a copy (`EnvPool.fork`). Continuations are measured,
never trained on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import chain, count

from agent.policy import Policy, Sampling
from agent.prompts.builder import PromptBuilder
from agent.rollout.live import Live
from agent.rollout.rollout import Rollout
from agent.rollout.watchdog import Watchdog
from agent.types import Group, Trajectory
from configs.seeds import derive
from credit.parts.continuations import Candidate, Segment
from credit.table import StepTable
from envs.base import EnvError, Observation, Task
from envs.pools.pool import EnvPool, Reply, opened
from rl.settings import RolloutSettings

Place = tuple[int, int]
"""(trajectory number, t): the state before step t."""


@dataclass(frozen=True, slots=True)
class _Branch:
    """A place as a task of its own.

    Attributes:
        id: Names it.
        task: The trajectory's.
        trajectory: As recorded.
        t: From 0 to its last step.
        source: Key of what stands there in the pool.
    """

    id: str
    task: Task
    trajectory: Trajectory
    t: int
    source: int

    @property
    def family(self) -> str:
        """See `Task.family`."""
        return self.task.family

    @property
    def split(self) -> str:
        """See `Task.split`."""
        return self.task.split


class _Continued(Rollout):
    """A rollout whose trajectories begin where their branches' sources stand."""

    def _open(self, one: Live, task: _Branch, seed: int) -> None:
        self._pool.fork(one.key, task.source)

    def _opened(self, one: Live, reply: Reply) -> None:
        branch = self._roster.task(one.seat)
        recorded = branch.trajectory
        conversation = Resumed(self._prompts, recorded, branch.t)
        one.opened(recorded.steps[branch.t].observation, recorded.instruction, conversation)


class Resumed:
    """A conversation that goes on before step `t`; its first prompt is the whole row so far."""

    def __init__(self, prompts: PromptBuilder, trajectory: Trajectory, t: int) -> None:
        self._conversation = prompts.start(trajectory.instruction)
        self._row: list[int] = []
        for step in trajectory.steps[:t]:
            ids, fresh = self._conversation.prompt(step.observation)
            self._row = [*([] if fresh else self._row), *ids, *step.response_ids]
            self.record(step.response_ids, step.action)

    def prompt(self, observation: Observation) -> tuple[list[int], bool]:
        """See `Conversation.prompt`."""
        ids, fresh = self._conversation.prompt(observation)
        row, self._row = self._row, []
        if fresh or not row:
            return ids, fresh
        return row + ids, True

    def record(self, response_ids: list[int], action: str) -> None:
        """See `Conversation.record`."""
        self._conversation.record(response_ids, action)


class Continuations:
    """The service `continuations` for one update's groups.

    Attributes:
        metrics: `probe/continuations/…` of what was played so far, empty at first.
    """

    def __init__(
        self, policy: Policy, groups: Sequence[Group], settings: RolloutSettings, *, seed: int
    ) -> None:
        """Plays nothing yet.

        Args:
            policy: With the weights that played `groups`.
            groups: Of one rollout.
            settings: As in the rollout.
            seed: Of the run.
        """
        self.metrics: dict[str, float] = {}
        self._policy, self._settings, self._seed = policy, settings, seed
        self._trajectories = sorted(chain.from_iterable(groups), key=lambda tr: (tr.group, tr.index))

    def segments(self, table: StepTable, candidates: Sequence[Candidate], samples: int) -> list[Segment]:
        """Plays on from before and after each candidate; a state that several share is played from once.

        Args:
            table: With trajectories numbered as `rl.rows.assemble.step_table` does.
            candidates: None reaches into its trajectory's last step.
            samples: Continuations from a state, at least 1.

        Raises:
            ValueError: a candidate that does.
            EnvError: a recorded trajectory cannot be repeated, see `reach`.
        """
        values = self._values({(c.trajectory, t) for c in candidates for t in (c.start, c.end)}, samples)
        result = []
        for c in candidates:
            before, after = values[c.trajectory, c.start], values[c.trajectory, c.end]
            result.append(Segment(c.trajectory, c.start, c.end, after - before, before, after, samples))
        return result

    def _values(self, places: Iterable[Place], samples: int) -> dict[Place, float]:
        """Share of successes among the continuations from each place."""
        places = sorted(places)
        if not places:
            return {}
        began = time.perf_counter()
        with opened(self._settings.environments) as pool, ExitStack() as stack:
            groups = self._played(pool, places, samples, stack)
        played = [tr for group in groups for tr in group]
        for what, amount in (
            ("trajectories", len(played)),
            ("tokens", sum(tr.tokens_sampled for tr in played)),
            ("seconds", time.perf_counter() - began),
        ):
            name = f"probe/continuations/{what}"
            self.metrics[name] = self.metrics.get(name, 0.0) + amount
        wins = [sum(tr.success for tr in group) / samples for group in groups]
        return dict(zip(places, wins, strict=True))

    def _played(self, pool: EnvPool, places: Sequence[Place], samples: int, stack: ExitStack) -> list[Group]:
        """`samples` continuations from each place; what stands there is released when `stack` closes."""
        tasks = {task.id: task for task in self._settings.tasks}
        walks: dict[int, _Walk] = {}
        for number, t in places:
            tr = self._trajectories[number]
            if not 0 <= t < len(tr.steps):
                raise ValueError(
                    f"trajectory {number} has {len(tr.steps)} steps, so nothing continues from t = {t}; "
                    f"segments end before the last step: expected 0 to {len(tr.steps) - 1}"
                )
            seed = derive(self._seed, "env", tr.group)
            walk = walks.setdefault(number, _Walk(tr, tasks[tr.task_id], seed, set()))
            walk.moments.add(t)
        keys = count(-1, -1)
        stack.callback(lambda: [pool.release(key) for key in range(-1, next(keys), -1)])
        told = "Recorded trajectories are played again for continuations."
        with Watchdog(self._settings.options.watchdog_s, lambda: told) as watchdog:
            sources = reach(pool, walks, keys, watchdog.pat)
        branches = []
        for number, t in places:
            tr = self._trajectories[number]
            name = f"continuation/{tr.group}/{tr.index}/{t}"
            branches.append(_Branch(name, tasks[tr.task_id], tr, t, sources[number, t]))
        running = _Continued(
            self._policy,
            Sampling(self._settings.temperature),
            pool,
            branches,
            group_size=samples,
            prompts=self._settings.prompts,
            max_parallel=self._settings.max_parallel,
            seed=self._seed,
            names=[branch.id for branch in branches],
            options=replace(self._settings.options, on_failure="reroll"),
        )
        groups = running.play()
        if running.counts.lost:
            raise EnvError(f"continuations could not be played: {'; '.join(running.counts.lost.values())}")
        return groups


@dataclass(frozen=True, slots=True)
class _Walk:
    """A recorded trajectory to play again as far as its last moment (steps to stand before)."""

    trajectory: Trajectory
    task: Task
    seed: int
    moments: set[int]


def reach(
    pool: EnvPool, walks: Mapping[int, _Walk], keys: Iterator[int], on_reply: Callable[[], None]
) -> dict[Place, int]:
    """Plays recorded actions again, all trajectories at once, and leaves a copy standing at each moment.

    Args:
        pool: Plays.
        walks: By trajectory number.
        keys: Of the pool, free ones.
        on_reply: Called whenever the pool has answered.

    Returns:
        Place → key of what stands there.

    Raises:
        EnvError: an observation is not the recorded one, the environment ends before the record does, or
            fails.
    """
    standing: dict[Place, int] = {}
    walkers = {next(keys): number for number in walks}
    outstanding = set(walkers)
    for key, number in walkers.items():
        pool.open(key, walks[number].task, walks[number].seed)
    while outstanding:
        for reply in pool.ready():
            outstanding.discard(reply.key)
            on_reply()
            if reply.failure is not None:
                raise EnvError(f"replay for continuations: {reply.failure.message}")
            if reply.key not in walkers:
                continue  # a copy that stands now
            number, t = walkers[reply.key], reply.index
            walk = walks[number]
            _compare(reply, walk.trajectory)
            if t == max(walk.moments):
                standing[number, t] = reply.key
                continue
            if t in walk.moments:
                standing[number, t] = copy = next(keys)
                pool.fork(copy, reply.key)
                outstanding.add(copy)
            pool.step(reply.key, walk.trajectory.steps[t].action)
            outstanding.add(reply.key)
    return standing


def _compare(reply: Reply, trajectory: Trajectory) -> None:
    """Holds what the environment says before step `reply.index` against the record."""
    where, t = f"replay of task {trajectory.task_id!r}", reply.index
    if reply.outcome is not None and reply.outcome.done:
        raise EnvError(
            f"{where}: expected to go on after step {t - 1}, got the end of the trajectory; "
            "was it played with another step limit?"
        )
    for part in ("text", "anchor", "admissible"):
        expected, got = getattr(trajectory.steps[t].observation, part), getattr(reply.observation, part)
        if got != expected:
            raise EnvError(
                f"{where}, before step {t}: the observation's {part} differs: expected {expected!r}, "
                f"got {got!r}. Continuations need an environment that is deterministic given task, seed and "
                "actions"
            )
