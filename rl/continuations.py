"""Continuations from the middle of recorded trajectories: how much a segment of one was worth.

    gain = mean success of K continuations from the state after the segment
           - mean success of K continuations from the state before it

all played by the current policy, with the prompts' history and the step limit as they were there. A state
is reached by playing the recorded actions again in the recorded task, every observation compared with the
recorded one; from there it is copied to the environments that continue (`Env.snapshot`), or each of them
replays on its own. Continuations are measured, never trained on.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal

from agent.policy import Policy, Sampling
from agent.prompts import Conversation, PromptBuilder
from agent.rollout import rollout
from agent.types import Group, Trajectory
from configs.seeds import derive
from credit._continuations import Candidate, Segment
from credit.table import StepTable
from envs.base import Env, EnvError, Observation, Outcome, Task
from rl.plan import Play

Branching = Literal["snapshot", "replay"]
"""How an environment gets to a state: `snapshot` where all share a process, `replay` anywhere."""


@dataclass(frozen=True, slots=True)
class _Branch:
    """The moment before step `t` of a trajectory, as a task of its own.

    Attributes:
        id: Names the branch, also where prompts look for its history.
        task: The trajectory's.
        env_seed: That its environment was reset with.
        trajectory: As recorded.
        t: From 0 to its last step.
        snapshot: The environment's state there, None to replay.
    """

    id: str
    task: Task
    env_seed: int
    trajectory: Trajectory
    t: int
    snapshot: Any = None

    @property
    def family(self) -> str:
        """See `Task.family`."""
        return self.task.family

    @property
    def split(self) -> str:
        """See `Task.split`."""
        return self.task.split


class _BranchEnv(Env):
    """Plays branches: `reset` goes to the moment. Its `instruction` is the branch's id."""

    def __init__(self, env: Env) -> None:
        self._env = env

    def reset(self, task: _Branch, seed: int = 0) -> Observation:
        """Goes to the moment of a branch; the environment's seed is the branch's own."""
        self.instruction = task.id
        if task.snapshot is not None:
            self._env.restore(task.snapshot)
        else:
            next(t for t in replay(self._env, task.task, task.env_seed, task.trajectory) if t == task.t)
        return task.trajectory.steps[task.t].observation

    def step(self, action: str) -> Outcome:
        """See `Env.step`."""
        return self._env.step(action)

    def snapshot(self) -> Any:
        """See `Env.snapshot`."""
        return self._env.snapshot()

    def restore(self, snapshot: Any) -> Observation:
        """See `Env.restore`."""
        return self._env.restore(snapshot)

    def close(self) -> None:
        """See `Env.close`."""
        self._env.close()


class _BranchPrompts:
    """The run's prompts with the history of each branch; a rollout takes it for a `PromptBuilder`."""

    def __init__(self, prompts: PromptBuilder, branches: Iterable[_Branch]) -> None:
        self._prompts = prompts
        self._branches = {branch.id: branch for branch in branches}
        self.turns, self.window = prompts.turns, prompts.window
        self.max_response_tokens = prompts.max_response_tokens

    def start(self, instruction: str) -> Conversation:
        """Resumes the branch whose id is `instruction`."""
        branch = self._branches[instruction]
        return _Resumed(self._prompts, branch.trajectory, branch.t)


class _Resumed:
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
        self,
        policy: Policy,
        groups: Sequence[Group],
        play: Play,
        *,
        branching: Branching,
        seed: int,
    ) -> None:
        """Plays nothing yet.

        Args:
            policy: With the weights that played `groups`.
            groups: Of one rollout.
            play: As in the rollout.
            branching: How states are reached.
            seed: Of the run.
        """
        self.metrics: dict[str, float] = {}
        self._policy, self._play, self._branching, self._seed = policy, play, branching, seed
        self._trajectories = sorted(chain.from_iterable(groups), key=lambda tr: (tr.group, tr.index))

    def segments(self, table: StepTable, candidates: Sequence[Candidate], samples: int) -> list[Segment]:
        """Plays on from before and after each candidate; a state that several share is played from once.

        Args:
            table: With trajectories numbered as `rl.assemble.step_table` does.
            candidates: None reaches into its trajectory's last step.
            samples: Continuations from a state, at least 1.

        Raises:
            ValueError: a candidate that does.
            EnvError: a recorded trajectory cannot be repeated, see `replay`.
        """
        values = self._values({(c.trajectory, t) for c in candidates for t in (c.start, c.end)}, samples)
        result = []
        for c in candidates:
            before, after = values[c.trajectory, c.start], values[c.trajectory, c.end]
            result.append(Segment(c.trajectory, c.start, c.end, after - before, before, after, samples))
        return result

    def _values(self, places: Iterable[tuple[int, int]], samples: int) -> dict[tuple[int, int], float]:
        """Share of successes among the continuations from each place: (trajectory, t), before step t."""
        places = sorted(places)
        if not places:
            return {}
        began = time.perf_counter()
        branches = self._branches(places)
        groups = rollout(
            self._policy,
            Sampling(self._play.temperature),
            lambda: _BranchEnv(self._play.make_env()),
            branches,
            group_size=samples,
            prompts=_BranchPrompts(self._play.prompts, branches),
            max_parallel=self._play.max_parallel,
            seed=self._seed,
            names=[branch.id for branch in branches],
        )
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

    def _branches(self, places: Sequence[tuple[int, int]]) -> list[_Branch]:
        """One a place; with `snapshot`, states are reached here, once a trajectory."""
        tasks = {task.id: task for task in self._play.tasks}
        wanted: dict[int, list[int]] = {}
        for number, t in places:
            steps = len(self._trajectories[number].steps)
            if not 0 <= t < steps:
                raise ValueError(
                    f"trajectory {number} has {steps} steps, so nothing continues from t = {t}; "
                    f"segments end before the last step: expected 0 to {steps - 1}"
                )
            wanted.setdefault(number, []).append(t)
        branches = []
        with closing(self._play.make_env()) as env:
            for number, moments in wanted.items():
                tr = self._trajectories[number]
                task, env_seed = tasks[tr.task_id], derive(self._seed, "env", tr.group)
                snapshots = {}
                if self._branching == "snapshot":
                    snapshots = _snapshots(env, task, env_seed, tr, moments)
                for t in moments:
                    name = f"continuation/{tr.group}/{tr.index}/{t}"
                    branches.append(_Branch(name, task, env_seed, tr, t, snapshots.get(t)))
        return branches


def _snapshots(
    env: Env, task: Task, seed: int, trajectory: Trajectory, moments: Sequence[int]
) -> dict[int, Any]:
    """The environment's state before each of the steps `moments`, in one pass up to the last of them."""
    found = {}
    for t in replay(env, task, seed, trajectory):
        if t in moments:
            found[t] = env.snapshot()
        if t == moments[-1]:
            break
    return found


def replay(env: Env, task: Task, seed: int, trajectory: Trajectory) -> Iterator[int]:
    """Plays the recorded actions of a trajectory again, and yields t before each step t.

    Raises:
        EnvError: an observation is not the recorded one, or the environment ends before the record does.
    """
    where = f"replay of task {trajectory.task_id!r}"
    seen = env.reset(task, seed)
    for step in trajectory.steps:
        for part in ("text", "anchor", "admissible"):
            expected, got = getattr(step.observation, part), getattr(seen, part)
            if got != expected:
                raise EnvError(
                    f"{where}, before step {step.t}: the observation's {part} differs: expected "
                    f"{expected!r}, got {got!r}. Continuations need an environment that is deterministic "
                    "given task, seed and actions"
                )
        yield step.t
        outcome = env.step(step.action)
        seen = outcome.observation
        if outcome.done and step is not trajectory.steps[-1]:
            raise EnvError(
                f"{where}: expected to go on after step {step.t}, got the end of the trajectory; "
                "was it played with another step limit?"
            )
