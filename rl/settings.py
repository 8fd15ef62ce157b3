"""What `rl.loop.train` is given: rollout settings, schedule and outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from agent.policy import Policy
from agent.prompts.builder import PromptBuilder
from agent.ranks import Alone, Ranks
from agent.rollout.options import Environments, RolloutOptions
from agent.steering.base import Steering
from agent.types import Group
from credit.table import StepTable
from envs.base import Task
from rl.checkpoint import Checkpoints
from rl.contract import Contract
from rl.rows.assemble import TokenRow, step_table
from rl.tracking.progress import ProgressPanel
from rl.tracking.tracker import NoTracker, Tracker
from rl.tracking.trajectory_store import TrajectoryStore

MaskedRows = Literal["abstain", "vote"]

Evaluate = Callable[[Policy, int], Mapping[str, float]]
"""(policy, updates done) → metrics named `eval/…`, `eval/success` among them."""


@dataclass(frozen=True, slots=True)
class RolloutSettings:
    """How an update's trajectories are made.

    Attributes:
        environments: Play the actions: a pool, or what makes an environment in this process.
        tasks: Of the train split, in an order that is the same every time.
        prompts: Turns observations into tokens.
        groups: Tasks per update.
        group_size: Trajectories per task (K).
        temperature: Of sampling; the learner must have the same.
        max_parallel: Trajectories in flight.
        success_reward: Scale of rewards in the step table.
        mask_truncated: Responses cut by length carry no loss.
        masked_rows: Whether steps without a token under the loss have a vote in the statistics of credit.
        options: How rollouts are run.
        early_stop: Stop groups that a filter's refill by whole batches has made superfluous.
        steering: The method's hand in the rollout, if it has one.
        ranks: The processes that share the playing.
    """

    environments: Environments
    tasks: Sequence[Task]
    prompts: PromptBuilder
    groups: int
    group_size: int
    temperature: float = 1.0
    max_parallel: int = 128
    success_reward: float = 10.0
    mask_truncated: bool = True
    masked_rows: MaskedRows = "abstain"
    options: RolloutOptions = field(default_factory=RolloutOptions)
    early_stop: bool = False
    steering: Steering | None = None
    ranks: Ranks = field(default_factory=Alone)

    def table(self, groups: Sequence[Group], rows: Sequence[TokenRow]) -> StepTable:
        """The step table of groups of which `rows` are trained on."""
        voters = rows if self.masked_rows == "abstain" else None
        return step_table(groups, success_reward=self.success_reward, voters=voters)


@dataclass(frozen=True, slots=True)
class RunSchedule:
    """How long a run is, and how often it looks up. 0 = only at the end (evaluations: also before).

    With `staleness` 1 an update's trajectories are rolled out while the update before trains. `contract` is
    checked after every transfer of weights. Every `score_every`-th update's responses, from the first, are
    scored by the learner too (0: none).
    """

    updates: int
    seed: int
    eval_every: int = 0
    checkpoint_every: int = 0
    staleness: int = 0
    contract: Contract | None = None
    score_every: int = 0


@dataclass(frozen=True, slots=True)
class Outputs:
    """Where a run's results go."""

    tracker: Tracker | NoTracker
    checkpoints: Checkpoints
    store: TrajectoryStore
    progress: ProgressPanel
