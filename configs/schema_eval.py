"""The options of `eval` and `checkpoint`; see `configs.schema`."""

from __future__ import annotations

import re

from pydantic import Field, field_validator

from configs.choosing import CHOOSING
from configs.schema_env import Section


class EvalConfig(Section):
    """Evaluation on a fixed split."""

    split: str = Field("valid_seen", description="Split to evaluate on.")
    tasks: int | None = Field(
        None, ge=1, description="Tasks of the split, chosen as `env.subset_seed` says (null: all)."
    )
    manifest: str | None = Field(
        None,
        description="Play exactly the tasks that this file lists, instead of `eval.tasks`: a manifest "
        "written by an evaluation or a run (docs/experiments.md).",
    )
    every: int = Field(
        0, ge=0, description="Updates between evaluations (0: only before and after training)."
    )
    temperature: float = Field(0.4, ge=0.0, description="Sampling temperature (papers: 0.4; 0 = greedy).")
    max_parallel: int = Field(128, ge=1, description="Trajectories in flight at once.")
    samples: int = Field(
        1,
        ge=1,
        description="Attempts per task. Success is their mean; with 2 or more, pass@k (at least one of k "
        "succeeds) and pass^k (all k succeed) are reported too. All intervals are over tasks. n attempts "
        "take n times as long.",
    )


class CheckpointConfig(Section):
    """Checkpoints of a run."""

    every: int = Field(10, ge=0, description="Updates between checkpoints (0: only at the end).")
    keep: int = Field(
        2, ge=1, description="Newest checkpoints to keep; while one is written there is one more on disk."
    )
    keep_best: str | None = Field(
        None,
        description="Also keep the checkpoint with the highest value of this metric at an evaluation "
        "(eval/success, eval/score, eval/success/FAMILY, eval/pass_at/K, eval/pass_hat/K; needs eval.every); "
        "`run.py eval --run RUN --best` loads it. Of equal ones the earliest is kept. At most keep + 2 "
        "checkpoints are then on disk (null: none).",
    )

    @field_validator("keep_best")
    @classmethod
    def _chosen_by(cls, metric: str | None) -> str | None:
        if metric is not None and not re.fullmatch(CHOOSING, metric):
            raise ValueError(
                "must be a metric to choose by: eval/success, eval/score, eval/success/FAMILY or, with "
                "eval.samples ≥ 2, eval/pass_at/K or eval/pass_hat/K"
            )
        return metric
