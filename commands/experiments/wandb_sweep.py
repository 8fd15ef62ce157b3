"""`run.py sweep FILE --wandb`: registers the file as a W&B sweep and starts agents for its points."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from commands.build.models import ROOT
from commands.build.terminal import open_console
from commands.experiments.launching import Options, interruptible, slots
from commands.experiments.sweep import FOLDER, SweepRuns, metric_range, pinned
from configs.load import find
from configs.text import ConfigError
from eval.experiments.launch import visible_gpus
from eval.experiments.spec import SweepFile, read_sweep

ARGUMENTS = "${args_no_hyphens}"


def run(file: str, overrides: Sequence[str], options: Options) -> int:
    """Registers the sweep and runs as many agents as runs fit here at a time; returns an exit code.

    Raises:
        ConfigError: A point cannot be used, there is no W&B account, or W&B refuses the sweep.
    """
    import wandb

    from rl.tracking.wandb_mirror import has_account

    console = open_console()
    path = find(file, FOLDER)
    sweep, raw = read_sweep(path)
    sweep, fixed = pinned(sweep, overrides)
    metric_range(sweep.metric.name)
    _, first = SweepRuns(sweep, fixed, options.out or Path("runs"), options).source()
    if not has_account():
        raise ConfigError(
            "--wandb registers the sweep with W&B, and there is no account: `wandb login`, or set "
            "WANDB_API_KEY. Without --wandb the same file runs on this machine alone."
        )
    project, entity = (
        sweep.project or first.config.logging.project,
        sweep.entity or first.config.logging.entity,
    )
    try:
        number = wandb.sweep(registered(sweep, raw, fixed, path.stem), entity=entity, project=project)
    except (wandb.errors.Error, ValueError, OSError) as error:
        raise ConfigError(f"W&B refuses the sweep: {error}") from error
    name = "/".join(filter(None, (entity, project, number)))
    agents = slots(options.parallel, "local", first.config.threads)
    console.print(
        f"W&B sweep {name}, {agents} agents; another machine joins with: wandb agent {name}", markup=False
    )
    return _work(name, agents, options.count)


def registered(sweep: SweepFile, raw: Mapping[str, Any], fixed: Sequence[str], name: str) -> dict[str, Any]:
    """Returns the file for W&B, with the command line's overrides in its command and parameters."""
    _, own = sweep.experiment()
    added = [item for item in fixed if item not in own]
    command = [str(word) for word in sweep.command]
    at = command.index(ARGUMENTS) if ARGUMENTS in command else len(command)
    parameters = {key: one.model_dump(exclude_unset=True) for key, one in sweep.parameters.items()}
    return {
        "name": name,
        **raw,
        "command": [*command[:at], *added, *command[at:]],
        "parameters": parameters,
    }


def _work(name: str, agents: int, count: int | None) -> int:
    """Runs agents, one per GPU if there are any, until the sweep is over."""
    gpus = visible_gpus()
    # W&B's ${interpreter} is the first `python` on PATH: put this one first.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    limit = ["--count", str(count)] if count else []
    command = [sys.executable, "-m", "wandb", "agent", "--forward-signals", *limit, name]
    running = []
    with interruptible():
        try:
            for slot in range(agents):
                gpu = {"CUDA_VISIBLE_DEVICES": gpus[slot % len(gpus)]} if gpus else {}
                running.append(subprocess.Popen(command, env={**os.environ, "PATH": path, **gpu}, cwd=ROOT))
            return max(process.wait() for process in running)
        finally:
            for process in running:
                if process.poll() is None:
                    process.terminate()
                    process.wait()
