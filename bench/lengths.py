"""Lengths of trajectories for `bench.tails`: recorded ones and the papers' shape."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from configs.seeds import derive

Steps = list[int]
"""Tokens of each response of a trajectory."""

RECORDED = Path(__file__).with_name("lengths_alfworld_cpu.json")


def paper_shape(success: float) -> list[list[Steps]]:
    """16 groups of 8 as in the papers' ALFWorld: at most 50 steps.

    No lengths are published. Assumed: who succeeds takes 5 steps and a geometric number more, 10 on average,
    who fails takes all 50; responses have a median of 60 tokens (lognormal, sigma 0.6), 512 at most.
    """
    rng = np.random.default_rng(derive(0, "tails", "paper"))

    def one() -> Steps:
        steps = min(5 + int(rng.geometric(0.1)), 50) if rng.random() < success else 50
        return np.clip(rng.lognormal(np.log(60), 0.6, steps), 1, 512).astype(int).tolist()

    return [[one() for _ in range(8)] for _ in range(16)]


def recorded(update: int, path: Path = RECORDED) -> list[list[Steps]]:
    """Groups of a recorded update."""
    return json.loads(path.read_text())["updates"][str(update)]


def record(run: Path, updates: Sequence[int], path: Path = RECORDED) -> None:
    """Writes the lengths of a run's updates."""
    from rl.tracking.trajectory_store import load_groups

    lengths = {
        update: [
            [[len(step.response_ids) for step in trajectory.steps] for trajectory in group]
            for group in load_groups(run / "trajectories" / f"{update:04d}.parquet")
        ]
        for update in updates
    }
    source = (
        f"tokens of each response of {run.name}, by update, group, trajectory and step (bench.tails --record)"
    )
    path.write_text(json.dumps({"source": source, "updates": lengths}, separators=(",", ":")) + "\n")
