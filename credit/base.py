"""What a stage is; it reads a `credit.table.StepTable`, and `credit.signals` flow from stage to stage.

A stage is one file `credit/stages/NAME.py` with one frozen dataclass whose fields are its hyper-parameters,
each made by `param` (default, meaning, allowed values) and checked when the stage is built. Kinds, in the
order in which a method lists them:

- `Steer`: what the rollout does differently while trajectories are made; the rollout's side is in `agent/`;
- `Filter`: which groups are worth training on; asked before anything else, may call for more rollouts;
- `Shaper`: changes returns (and scores), before any comparison between rows;
- `Estimator`: makes the advantage, [N] or `PerToken`, by comparing rows; a method has exactly one;
- `Reweighter`: changes an advantage that exists, to [N] or `PerToken` (one value per response token);
- `AuxLoss`: weights of a distillation term beside the policy loss, one per response token.

What a stage needs beyond the table is named by it: services in `requires` (a pair scorer, continuations),
token columns in `token_columns` (entropies, a teacher's log-probabilities). Both are checked at start-up.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from configs.params import Checked
from credit.signals import Context, Estimated, Shaped, Signals, Weighted
from credit.table import StepTable


@dataclass(frozen=True)
class Stage(Checked):
    """Base of all stages: checks every field against its `param` when built.

    Attributes:
        requires: names of the services it asks.
        metrics_doc: what its metrics mean.
        columns_doc: what its columns mean.
        activity: the name in `metrics_doc` of what is 0 where the stage changes nothing; "" if there is none.
        optional: the method runs without it too, so that its effect can be measured (`credit.parts.effect`).
        credited: name of the column that is above 0 in rows it credits, "" if it credits none in particular.
    """

    requires: ClassVar[frozenset[str]] = frozenset()
    metrics_doc: ClassVar[Mapping[str, str]] = {}
    columns_doc: ClassVar[Mapping[str, str]] = {}
    activity: ClassVar[str] = ""
    optional: ClassVar[bool] = False
    credited: ClassVar[str] = ""

    @classmethod
    def place(cls) -> str:
        """See `Checked.place`."""
        return f"credit.{cls.name()}"

    @classmethod
    def name(cls) -> str:
        """The name in method files: that of the stage's file."""
        return cls.__module__.rsplit(".", 1)[-1]

    @property
    def token_columns(self) -> frozenset[str]:
        """Columns of `StepTable.tokens` that this stage reads; `rl.probes.probes` computes them."""
        return frozenset()


class Steer(Stage):
    """A hand in the rollout: options and rules only. `agent.steering.base` says what can be done, and
    `agent.steering.choose` which class does it under these options."""

    def weigh(self, confidence: np.ndarray) -> np.ndarray:
        """Shares of a step's advantage among its answers, where the rollout recorded several.

        Args:
            confidence: float [M], see `rl.rows.unplayed.confidence`; the played answer first.

        Returns:
            float [M] with mean 1.
        """
        return np.ones(len(confidence))


class Filter(Stage, ABC):
    """Groups to train on. What is left out is rolled out again with other tasks, `max_batches` times at most.

    Attributes:
        max_batches: rollouts per update, all tries together; the last is kept whole.
        refill: what a further try plays: `missing` (as many tasks as are missing), `batch` (a whole batch;
            what is too many is cut) or `batch_all` (and trained on).
    """

    max_batches: int
    refill: str

    @abstractmethod
    def keep(self, table: StepTable) -> np.ndarray:
        """bool [N]: rows of the canonical `table` to keep; the same in all rows of a group."""


class Shaper(Stage, ABC):
    """Returns to returns.

    Attributes:
        returns_only: its work is in the returns alone, so it needs an estimator that compares returns.
    """

    returns_only: ClassVar[bool] = False
    optional = True

    @abstractmethod
    def shape(self, table: StepTable, signals: Signals, context: Context) -> Shaped:
        """New returns (or scores) of the canonical `table`."""


class Estimator(Stage, ABC):
    """Table and returns to advantage.

    Attributes:
        compares_returns: whether steps' returns matter to it, or outcomes only.
    """

    compares_returns: ClassVar[bool] = False

    @abstractmethod
    def estimate(self, table: StepTable, signals: Signals, context: Context) -> Estimated:
        """Advantage [N] or `PerToken` of the canonical `table`."""


class Reweighter(Stage, ABC):
    """Advantage to advantage."""

    optional = True

    @abstractmethod
    def reweight(self, table: StepTable, signals: Signals, context: Context) -> Estimated:
        """Advantage [N] or `PerToken` from `signals.advantage`."""


class AuxLoss(Stage, ABC):
    """A distillation term beside the policy loss.

        L = L_policy + sum_i agg_i w_i (logp_teacher_i - logp_now_i)

    over the response tokens i, agg the loss's own aggregation. The weights w are constants to the gradient,
    and so is the teacher, so w is all that the learner needs.
    """

    @abstractmethod
    def weigh(self, table: StepTable, signals: Signals, context: Context) -> Weighted:
        """Weights [sum(length)] of the canonical `table`, 0 where there is nothing to distil."""
