"""How many processes a run has: on a CPU, one per core unless told otherwise."""

from __future__ import annotations

import os
from pathlib import Path

import psutil

from configs.schema import Config
from credit.pipeline import Pipeline
from credit.stages.tree_search import TreeSearch

PROCESS_BYTES = int(1.5 * 2**30)
"""Memory of one process of the embedded default (docs/decisions.md has the measurement)."""


def process_count(config: Config, pipeline: Pipeline, asked: int | None = None) -> int:
    """Returns how many processes train.

    A launcher's number comes first (`WORLD_SIZE`), then `asked`, then `processes` in the configuration. If
    nobody says: one per physical core where everything is plain PyTorch on the CPU, as far as memory goes.
    Everywhere else one, for it is the user who knows which accelerators or servers are his.

    Args:
        config: Of the run.
        pipeline: The credit method; a tree search trains after every step of its search, in one process.
        asked: On the command line.
    """
    if "RANK" in os.environ:
        return int(os.environ.get("WORLD_SIZE", "1"))
    if asked or config.processes:
        return asked or config.processes
    searches = any(isinstance(stage, TreeSearch) for stage in pipeline.steers)
    if searches or config.train.engine != "torch" or config.generator.backend != "torch" or _has_gpu():
        return 1
    room = psutil.virtual_memory().available // PROCESS_BYTES
    return max(1, min(physical_cores(), config.trajectories, room))


def physical_cores() -> int:
    """Cores that this process may use: no more than there are, are allowed to it, or its container pays for.

    Two threads of one core share its arithmetic, so a process for each gains nothing.
    """
    logical = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    counts = [logical, psutil.cpu_count(logical=False) or logical]
    if (quota := _quota(Path("/sys/fs/cgroup/cpu.max"))) is not None:
        counts.append(quota)
    return max(1, min(counts))


def _quota(file: Path) -> int | None:
    """Whole cores that a container's limit gives (cgroup v2: "<microseconds> <period>", or "max …")."""
    try:
        most, period = file.read_text(encoding="ascii").split()
    except (OSError, ValueError):  # no such limit on this system
        return None
    return None if most == "max" else max(1, int(most) // int(period))


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()
