"""Groups of trajectories: an event loop between the policy and the environments.

At most `max_parallel` trajectories are in flight. One that ends leaves its seat to the next in line, so a
finished trajectory costs nothing. Two modes:

- `deterministic`: in rounds. Everybody in flight is answered in one batch and plays, then everybody's
  environment is waited for. A batch's composition depends on the trajectories alone, so equal seeds give
  equal trajectories to the last bit, whatever plays the environments.
- `free`: nobody waits. A trajectory moves on as soon as *its* response or *its* environment is ready; the
  policy decodes whatever is in flight. Batches depend on timing, which can move the last bits of a
  log-probability, and so, rarely, a token.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

from agent.policy import Policy, Sampling
from agent.prompts.builder import PromptBuilder
from agent.rollout.groups import OnGroup, Part, Roster
from agent.rollout.live import Live
from agent.rollout.options import Environments, Progress, RolloutOptions
from agent.rollout.watchdog import Watchdog
from agent.steering.base import Steering
from agent.types import Generation, Group
from envs.base import Task
from envs.pools.pool import Reply, opened


def rollout(
    policy: Policy, sampling: Sampling, environments: Environments, tasks: Sequence[Task], **options: Any
) -> list[Group]:
    """Plays every task `group_size` times; takes what `Rollout` takes, by the same names."""
    return Rollout(policy, sampling, environments, tasks, **options).play()


class Rollout:
    """One rollout.

    Args:
        policy: Generates the responses; its window must hold the prompts'.
        sampling: How tokens are drawn.
        environments: Plays the actions.
        tasks: Group `numbers[i]` plays `tasks[i]`.
        group_size: Trajectories per task; they share the task and its initial state.
        prompts: Turns observations into tokens, and leaves room for a response.
        max_parallel: Trajectories in flight at once. Results do not depend on it (up to float batching).
        seed: Everything random derives from it and from (group, index, t).
        numbers: Of the groups, ascending; None: from 0.
        names: One per task, that its seeds derive from instead of the group's number; so what a task is
            played like does not depend on which others are played.
        options: How it is run.
        steering: A method's hand in it; None: every response acts.
        on_group: See `agent.rollout.groups.OnGroup`.
        part: Of the trajectories, those to play here; None: all.
        on_progress: Called when steps were played, with (trajectories done, tokens sampled).

    Attributes:
        counts: Failures and the like, complete after `play`.

    Raises:
        ValueError: `max_parallel` or `group_size` below 1, or a window smaller than the prompts'.
    """

    def __init__(
        self,
        policy: Policy,
        sampling: Sampling,
        environments: Environments,
        tasks: Sequence[Task],
        *,
        group_size: int,
        prompts: PromptBuilder,
        max_parallel: int,
        seed: int,
        numbers: Sequence[int] | None = None,
        names: Sequence[str] | None = None,
        options: RolloutOptions | None = None,
        steering: Steering | None = None,
        on_group: OnGroup | None = None,
        part: Part | None = None,
        on_progress: Progress | None = None,
    ) -> None:
        if max_parallel < 1 or group_size < 1:
            raise ValueError(
                f"max_parallel ({max_parallel}) and group_size ({group_size}) must be at least 1"
            )
        if policy.window < prompts.window:
            raise ValueError(
                f"the policy's window ({policy.window}) is below prompt.window ({prompts.window})"
            )
        self._policy, self._prompts, self._max_parallel = policy, prompts, max_parallel
        self._options = options or RolloutOptions()
        self._steering = steering
        self._sampling = replace(sampling, top=steering.top) if steering else sampling
        self._environments, self._on_progress = environments, on_progress
        self._roster = Roster(
            tasks,
            group_size,
            seed=seed,
            numbers=numbers,
            names=names,
            on_failure=self._options.on_failure,
            on_group=on_group,
            part=part,
        )
        self.counts = self._roster.counts
        self._keys = count()
        self._live: dict[int, Live] = {}  # in the order they started
        self._acting: set[int] = set()  # keys the pool owes a reply
        self._thinking: set[int] = set()  # keys the policy owes a response
        self._sampled = 0

    def play(self) -> list[Group]:
        """Plays.

        Returns:
            The groups in order of `tasks`, members in order of `index`; without what failed.

        Raises:
            RolloutError: an environment failed and `on_failure` is `stop`.
        """
        turn = self._round if self._options.mode == "deterministic" else self._tick
        watchdog = Watchdog(self._options.watchdog_s, self._waiting_for)
        with opened(self._environments) as self._pool, watchdog as self._watchdog:
            try:
                while self._roster.waiting or self._live:
                    played = turn()
                    if played and self._on_progress:
                        self._on_progress(self._roster.done, self._sampled)
            finally:
                for key in list(self._live):
                    self._leave(key)
        groups = self._roster.groups()
        played = sum(trajectory.tokens_sampled for group in groups for trajectory in group)
        self.counts.unplayed = self._sampled - played
        return groups

    def _round(self) -> bool:
        """The deterministic mode: every trajectory in flight makes one step."""
        while self._seat():
            self._settle()  # an opening that fails leaves its seat to the next
        asking = list(self._live.values())
        while asking:
            generations = self._policy.generate(
                [one.request(self._prompts) for one in asking], self._sampling
            )
            self._watchdog.pat()
            asking = [o for o, g in zip(asking, generations, strict=True) if not self._answer(o, g)]
        self._settle()
        return True

    def _settle(self) -> None:
        """Waits for all environments, then takes their replies in the order of the seats."""
        replies: dict[int, Reply] = {}
        while self._acting:
            for reply in self._pool.ready(self._patience()):
                replies[reply.key] = reply
                self._acting.discard(reply.key)
                self._watchdog.pat()
            self._expire(self._acting)
        for key in list(self._live):
            if key in replies and key in self._live:
                self._hear(replies[key])

    def _tick(self) -> bool:
        """The free mode: takes what is ready, and decodes one round; returns whether anybody acted."""
        self._seat()
        asking = []
        for reply in self._pool.ready(0.0 if self._thinking else self._patience()):
            self._acting.discard(reply.key)
            self._watchdog.pat()
            if reply.key in self._live and self._hear(reply):
                asking.append(self._live[reply.key])
        self._ask(one for one in asking if one.key in self._live)  # a later reply may have ended its group
        acted = False
        if self._thinking:
            again = []
            for key, generation in self._policy.advance():
                self._thinking.discard(key)
                if self._answer(self._live[key], generation):
                    acted = True
                else:
                    again.append(self._live[key])
            self._ask(again)
            self._watchdog.pat()
        self._expire(self._live)
        return acted or not self._live

    def _seat(self) -> bool:
        """Opens the next in line as long as there are seats; returns whether it opened any."""
        opened = False
        while self._roster.waiting and len(self._live) < self._max_parallel:
            seat, record, env_seed = self._roster.next()
            pilot = self._steering.pilot(self._prompts.turns) if self._steering else None
            one = Live(next(self._keys), seat, record, pilot, time.monotonic())
            self._live[one.key] = one
            self._acting.add(one.key)
            self._open(one, self._roster.task(seat), env_seed)
            opened = True
        return opened

    def _open(self, one: Live, task: Task, seed: int) -> None:
        """Has a trajectory begin; a subclass can have it begin elsewhere."""
        self._pool.open(one.key, task, seed)

    def _opened(self, one: Live, reply: Reply) -> None:
        """Takes a trajectory's first observation."""
        one.opened(reply.observation, reply.instruction, self._prompts.start(reply.instruction))

    def _ask(self, lives: Iterable[Live]) -> None:
        requests = [one.request(self._prompts) for one in lives]
        if requests:
            self._policy.start(requests, self._sampling)
            self._thinking.update(request.key for request in requests)

    def _answer(self, one: Live, generation: Generation) -> bool:
        """Takes a response; returns whether it was played, or is to be asked for again."""
        self._sampled += len(generation.ids)
        action = one.answer(generation, self._prompts, self._policy.version)
        if action is None:
            return False
        self._acting.add(one.key)
        self._pool.step(one.key, action)
        return True

    def _hear(self, reply: Reply) -> bool:
        """Takes an environment's reply; returns whether there is a prompt to answer."""
        one = self._live[reply.key]
        if reply.failure is not None:
            self._fail(one, reply.failure.reason, reply.failure.message)
            return False
        if reply.index == 0:
            self._opened(one, reply)
            return True
        if one.stepped(reply.outcome):
            return True
        self._leave(one.key)
        self._roster.ended(one.seat, one.trajectory)
        self._sweep()
        return False

    def _fail(self, one: Live, reason: str, message: str) -> None:
        self._leave(one.key)
        self._roster.failed(one.seat, reason, message)
        self._sweep()

    def _expire(self, keys: Iterable[int]) -> None:
        """Fails those of `keys` whose time is up."""
        limit = self._options.time_limit_s
        if limit is None:
            return
        now = time.monotonic()
        for key in list(keys):
            one = self._live.get(key)
            if one is not None and now - one.began > limit:
                steps = len(one.trajectory.steps)
                message = f"task {one.trajectory.task_id!r}: not over after {limit:g} s and {steps} steps"
                self._fail(one, "time_limit", message)

    def _patience(self) -> float | None:
        """How long to wait for an environment: until somebody's time is up."""
        limit = self._options.time_limit_s
        if limit is None or not self._live:
            return None
        return max(0.0, min(one.began for one in self._live.values()) + limit - time.monotonic()) + 0.001

    def _sweep(self) -> None:
        """Abandons those that are of no use any more."""
        for key, one in list(self._live.items()):
            if not self._roster.wants(one.seat):
                self._leave(key)

    def _leave(self, key: int) -> None:
        """Takes a trajectory out of flight."""
        del self._live[key]
        self._acting.discard(key)
        self._thinking.discard(key)
        self._policy.release(key)
        self._pool.release(key)

    def _waiting_for(self) -> str:
        """For the watchdog."""
        owed = [self._live[key].trajectory for key in sorted(self._acting) if key in self._live]
        some = ", ".join(f"{tr.task_id} (member {tr.index}, step {len(tr.steps)})" for tr in owed[:5])
        more = f" and {len(owed) - 5} more" if len(owed) > 5 else ""
        asked = len(self._live) - len(owed)
        return f"Waiting for {asked} responses and {len(owed)} environments: {some or 'none'}{more}."
