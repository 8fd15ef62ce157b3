"""What several processes gain on a CPU: updates of the embedded default, against one process in the same run.

    python -m bench.processes [--updates 2] [--nproc N]

Each is `run.py train alfworld_cpu`, one after the other: one process with one thread, one process with as
many threads as there are cores, and N processes of one thread each. Said are seconds per update, and the
ratio to each of the first two: how much two threads gain in one process differs by machine.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from commands.processes import physical_cores
from rl.tracking.tracker import read_metrics

ROOT = Path(__file__).resolve().parent.parent
PHASES = ("rollout", "learner", "update")


def seconds(processes: int, threads: int, updates: int) -> dict[str, float]:
    """Mean seconds per update of each phase."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        options = [f"train.updates={updates}", "eval.tasks=10", "logging.wandb=off", f"processes={processes}"]
        options.append(f"threads={threads}")
        command = [sys.executable, "run.py", "train", "alfworld_cpu", *options, "--out", str(out)]
        environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
        subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.DEVNULL)
        records = read_metrics(out / "metrics.jsonl")[1:]
    ended = [record["time/update"] - record.get("time/eval", 0.0) for record in records]
    parts = {name: float(np.mean([record[f"time/{name}"] for record in records])) for name in PHASES[:-1]}
    return parts | {"update": float(np.mean(ended))}


def main() -> None:
    """Prints one line per number of processes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--updates", type=int, default=2)
    parser.add_argument("--nproc", type=int, default=physical_cores())
    options = parser.parse_args()
    print(f"{'processes':>10}{'threads':>9}" + "".join(f"{name:>10}" for name in PHASES) + "  ratios")
    found: list[dict[str, float]] = []
    for processes, threads in ((1, 1), (1, physical_cores()), (options.nproc, 1)):
        found.append(seconds(processes, threads, options.updates))
        line = "".join(f"{found[-1][name]:9.1f}s" for name in PHASES)
        ratios = "".join(f"{found[-1]['update'] / one['update']:7.2f}" for one in found[:2])
        print(f"{processes:10}{threads:9}{line}{ratios}", flush=True)


if __name__ == "__main__":
    main()
