"""`run.py train`: starts a run's processes, or trains in this one.

It imports no model's library before it has decided: a process that only starts others is quick about it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from commands.build.declared import check_world, credit_pipeline
from commands.build.terminal import check_accelerator
from commands.processes import process_count
from commands.run_folder import start


def run(
    experiment: str | None,
    overrides: Sequence[str],
    resume: Path | None,
    out: Path | None = None,
    nproc: int | None = None,
) -> None:
    """Trains an experiment into `out` (or a new folder), or goes on with a run; prints its result at the end.

    `nproc` is the number of processes; without, `commands.processes` decides.
    """
    loaded, run_dir = start(experiment, overrides, resume, out)
    check_world(loaded)
    pipeline = credit_pipeline(loaded)
    check_accelerator(loaded.config)
    processes = process_count(loaded.config, pipeline, nproc)
    if processes > 1 and "RANK" not in os.environ:
        _launch(processes, experiment, overrides, resume, run_dir)
        return
    loaded = replace(loaded, config=loaded.config.model_copy(update={"processes": processes}))
    from commands.train_here import train_here

    train_here(loaded, pipeline, run_dir, resumed=resume is not None)


def _launch(
    nproc: int, experiment: str | None, overrides: Sequence[str], resume: Path | None, run_dir: Path
) -> None:
    """Starts `nproc` processes that train; exits with their code if they fail."""
    from commands.launch import launch

    place = ["--resume", str(run_dir)] if resume else ["--out", str(run_dir)]
    code = launch(nproc, ["train", *filter(None, [experiment]), *overrides, *place])
    if code and (run_dir / "checkpoints").is_dir():
        print(f"go on with: python run.py train --resume {run_dir} --nproc {nproc}", file=sys.stderr)
    if code:
        raise SystemExit(code)
