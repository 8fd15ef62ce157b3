"""Trajectories of an update as one parquet file, one row per step, readable back for replay.

Columns: identity (`update policy_version task_id family instruction group index trajectory
trajectory_seed t`), outcome of the trajectory (`success score truncated`), the step (`observation anchor
commands prompt_ids fresh response_ids logp_sampled forced finish response thought action well_formed
admissible valid listed reward next_observation next_anchor next_commands`) and its credit (`votes`, whether
statistics over peers count it, `return advantage token_advantage`, and the pipeline's `stage.column` ones).
`logp_now`, the learner's log-probabilities before the update, is there if the run measured them.
Unplayed responses (`Step.unplayed`) are not kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from agent.types import Group, Step, Trajectory
from credit.pipeline import CreditResult
from credit.table import StepTable
from envs.base import Observation

if TYPE_CHECKING:  # the import takes a second that runs without a store need not pay
    from datasets import Dataset


class TrajectoryStore:
    """The folder `trajectories/` of a run: one `NNNN.parquet` per update that is kept."""

    def __init__(self, folder: Path, every: int = 1) -> None:
        """Creates no folder before there is something to write.

        Args:
            folder: Where the files go.
            every: Keep every n-th update (0: none).
        """
        self._folder, self._every = folder, every

    def due(self, update: int) -> bool:
        """Whether this update is kept; the first always is, unless none are."""
        return self._every > 0 and (update - 1) % self._every == 0

    def write(
        self,
        update: int,
        groups: Sequence[Group],
        table: StepTable,
        credit: CreditResult,
        logp_now: Sequence[Sequence[float | None]] | None = None,
    ) -> Path:
        """Writes one update's file; rows and `logp_now` (`assemble.by_token`) in the order of `table`."""
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{update:04d}.parquet"
        partial = path.with_suffix(".partial")
        columns = _columns(list(_rows(update, groups)), table, credit)
        if logp_now is not None:
            columns["logp_now"] = logp_now
        _dataset(columns).to_parquet(str(partial))
        partial.replace(path)
        return path


def load_table(paths: Path | Iterable[Path]) -> Dataset:
    """Reads one or several files as a `datasets.Dataset`, in the order given."""
    from datasets import Dataset, concatenate_datasets

    files = [paths] if isinstance(paths, Path) else list(paths)
    parts = [Dataset.from_parquet(str(path), keep_in_memory=True) for path in files]
    return parts[0] if len(parts) == 1 else concatenate_datasets(parts)


def load_groups(path: Path) -> list[Group]:
    """Rebuilds the groups of one file exactly as the rollout recorded them."""
    trajectories: dict[int, Trajectory] = {}
    for row in load_table(path):
        trajectory = trajectories.get(row["trajectory"])
        if trajectory is None:
            trajectory = trajectories[row["trajectory"]] = Trajectory(
                task_id=row["task_id"],
                family=row["family"],
                instruction=row["instruction"],
                group=row["group"],
                index=row["index"],
                seed=row["trajectory_seed"],
                success=row["success"],
                score=row["score"],
                truncated=row["truncated"],
            )
        trajectory.steps.append(_step(row))
    groups: dict[int, Group] = {}
    for trajectory in trajectories.values():
        groups.setdefault(trajectory.group, []).append(trajectory)
    return list(groups.values())


def _dataset(columns: Mapping[str, Any]) -> Dataset:
    from datasets import Dataset, disable_progress_bars

    disable_progress_bars()  # they would tear the live line, for a file of a few milliseconds
    return Dataset.from_dict(columns)


def _columns(rows: Sequence[dict[str, Any]], table: StepTable, credit: CreditResult) -> dict[str, Any]:
    columns: dict[str, Any] = {name: [row[name] for row in rows] for name in rows[0]}
    columns["trajectory"] = table.trajectory.tolist()
    columns["votes"] = table.votes.tolist()
    columns["return"] = credit.returns.tolist()
    columns["advantage"] = credit.advantage.tolist()
    if credit.token_advantage is not None:
        parts = np.split(credit.token_advantage, table.offsets[1:-1])
        columns["token_advantage"] = [part.tolist() for part in parts]
    for name, values in credit.columns.items():
        columns[name] = values.tolist()
    return columns


def _rows(update: int, groups: Sequence[Group]) -> Iterable[dict[str, Any]]:
    trajectories = sorted((tr for group in groups for tr in group), key=lambda tr: (tr.group, tr.index))
    for tr in trajectories:
        for step in tr.steps:
            yield {
                "update": update,
                "policy_version": step.policy_version,
                "task_id": tr.task_id,
                "family": tr.family,
                "instruction": tr.instruction,
                "group": tr.group,
                "index": tr.index,
                "trajectory_seed": tr.seed,
                "success": tr.success,
                "score": tr.score,
                "truncated": tr.truncated,
                "t": step.t,
                "observation": step.observation.text,
                "anchor": step.observation.anchor,
                "commands": list(step.observation.admissible),
                "prompt_ids": list(step.prompt_ids),
                "fresh": step.fresh,
                "response_ids": list(step.response_ids),
                "logp_sampled": list(step.logp_sampled),
                "forced": list(step.forced),
                "finish": step.finish,
                "response": step.response,
                "thought": step.thought,
                "action": step.action,
                "well_formed": step.well_formed,
                "admissible": step.admissible,
                "valid": step.valid,
                "listed": step.listed,
                "reward": step.reward,
                "next_observation": step.next_observation.text,
                "next_anchor": step.next_observation.anchor,
                "next_commands": list(step.next_observation.admissible),
            }


def _step(row: dict[str, Any]) -> Step:
    return Step(
        t=row["t"],
        observation=Observation(row["observation"], row["anchor"], tuple(row["commands"])),
        prompt_ids=row["prompt_ids"],
        fresh=row["fresh"],
        response_ids=row["response_ids"],
        logp_sampled=row["logp_sampled"],
        finish=row["finish"],
        policy_version=row["policy_version"],
        response=row["response"],
        thought=row["thought"],
        action=row["action"],
        well_formed=row["well_formed"],
        admissible=row["admissible"],
        reward=row["reward"],
        next_observation=Observation(
            row["next_observation"], row["next_anchor"], tuple(row["next_commands"])
        ),
        forced=tuple(row.get("forced", (0, 0))),  # files from before these were kept lack them
        listed=row.get("listed", True),
    )
