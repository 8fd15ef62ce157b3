"""The configuration and the folder of a training run, new or resumed."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path

from configs.load import Loaded, load, load_run, plain, write_config
from configs.resuming import config_differences
from configs.text import ConfigError
from eval.report import environment


def start(
    experiment: str | None, overrides: Sequence[str], resume: Path | None, out: Path | None
) -> tuple[Loaded, Path]:
    """Returns the configuration and the folder of a run. Does not create a new folder.

    Raises:
        ConfigError: Nothing says what to train, or the folder holds another run.
    """
    if resume is not None:
        if out is not None:
            raise ConfigError("--resume goes on in the run's own folder: leave --out away")
        saved = load_run(resume)
        loaded = load_run(resume, overrides) if experiment is None else load(experiment, overrides)
        differences = config_differences(plain(saved.config), plain(loaded.config))
        if differences:
            raise ConfigError(
                f"cannot resume {resume} under another configuration:\n  " + "\n  ".join(differences) + "\n"
                "Go on with its own (`train --resume RUN` without these), or start a new run."
            )
        return loaded, resume
    if experiment is None:
        raise ConfigError(
            "name an experiment (`run.py train alfworld_cpu`), or a run to go on with (`--resume RUN`)"
        )
    loaded = load(experiment, overrides)
    config = loaded.config
    if out is not None:
        if (out / "config.json").exists():
            raise ConfigError(
                f"{out} holds a run: go on with it (`train --resume {out}`), or choose another --out"
            )
        return loaded, out
    # Agents of a W&B sweep start runs in the same second: W&B's id tells their folders apart.
    stamp = "-".join(filter(None, (time.strftime("%Y%m%d-%H%M%S"), os.environ.get("WANDB_RUN_ID"))))
    return loaded, Path("runs") / f"{config.name}-{config.credit.name}-s{config.seed}-{stamp}"


def record(loaded: Loaded, run_dir: Path) -> None:
    """Writes config.json, and sources.json (where each value came from) unless it is there already."""
    run_dir.mkdir(parents=True, exist_ok=True)
    write_config(loaded.config, run_dir / "config.json")
    environment.record(run_dir)
    sources = run_dir / "sources.json"
    if not sources.exists():
        sources.write_text(json.dumps(dict(loaded.sources), indent=2) + "\n", encoding="utf-8")
