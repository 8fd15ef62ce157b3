"""What several processes gain on a CPU: updates of the embedded default, against one process in the same run.

    python -m bench.processes [--updates 2] [--nproc N]

Each is `run.py train alfworld_cpu`, N processes of one thread each against one process with as many threads
as there are cores, one after the other. Said are seconds per update, and the ratio.
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


def seconds(processes: int, updates: int) -> dict[str, float]:
    """Mean seconds per update of each phase."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        options = [f"train.updates={updates}", "eval.tasks=10", "logging.wandb=off", f"processes={processes}"]
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
    print(f"{'processes':>10}" + "".join(f"{name:>10}" for name in PHASES) + f"{'ratio':>8}", flush=True)
    one = seconds(1, options.updates)
    for processes, found in ((1, one), (options.nproc, None)):
        found = found or seconds(processes, options.updates)
        line = "".join(f"{found[name]:9.1f}s" for name in PHASES)
        print(f"{processes:10}{line}{found['update'] / one['update']:8.2f}", flush=True)


if __name__ == "__main__":
    main()
