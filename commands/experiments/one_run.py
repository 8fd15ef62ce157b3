"""One run of a sweep or an ablation: its checked configuration, its name, and the command that starts it."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from commands.build.declared import check_world, credit_pipeline
from commands.build.models import ROOT
from configs.load import Loaded, load, plain
from configs.neutral import NOTHING, ROUNDING, effect, without
from configs.old_keys import first_names
from configs.text import ConfigError
from eval.experiments.folder import Run
from eval.experiments.launch import Job
from eval.experiments.points import overrides, typed

_LONGEST_NAME = 80
_FREE = (NOTHING, ROUNDING)
_BRING_OTHERS = ("protocol", "credit.settings")
"""Labels; given to a resumed run, they would apply again the options that its configuration has already."""


def make_run(
    experiment: str,
    fixed: Sequence[str],
    point: Mapping[str, Any],
    *,
    folder: Path,
    label: str | None = None,
    options: Mapping[str, Any] | None = None,
    logging: Sequence[str] = (),
) -> tuple[Run, Loaded]:
    """Returns a run of a sweep or an ablation after checking its configuration.

    The name of its folder ends with a digest of its configuration, so after a change of the file, or of a
    default, an old run is never taken for a new one. Options that change no result, or only its rounding, are
    left out of the digest unless the point varies them: a run need not be repeated because it was made
    elsewhere or with other threads.

    Args:
        experiment: As on the command line.
        fixed: Overrides that all runs share.
        point: The options that distinguish the run, `seed` included.
        folder: The folder of all runs.
        label: Name under which it is compared; default: made from `point` without its seed.
        options: Overrides of this run (default: `point`).
        logging: More overrides, which do not change the run itself.

    Raises:
        ConfigError: The configuration cannot be used; the message names the point.
    """
    options = point if options is None else options
    own = overrides(options)
    # Several runs at a time use the cores better than several processes of one.
    alone = [] if any(o.startswith("processes=") for o in (*fixed, *own)) else ["processes=1"]
    short = {name: value for name, value in point.items() if name != "seed"}
    spelled = ", ".join(f"{name.rpartition('.')[2]}={typed(value)}" for name, value in short.items())
    try:
        loaded = load(experiment, [*alone, *fixed, *own])
        check_world(loaded)
        credit_pipeline(loaded)
    except ConfigError as error:
        raise ConfigError(f"at {' '.join(own)}:\n{error}") from error
    config = loaded.config
    matters = first_names(without(plain(config), _FREE))
    if varied := {name: value for name, value in options.items() if effect(name) in _FREE}:
        matters["varied"] = varied
    digest = hashlib.sha256(json.dumps(matters, sort_keys=True).encode()).hexdigest()[:8]
    words = re.sub(r"[^\w.+-]+", "-", f"{label or spelled}".replace("=", "")).strip("-")[:_LONGEST_NAME]
    name = "-".join(filter(None, (words, f"s{config.seed}", digest)))
    run = Run(
        name=name,
        folder=folder / name,
        arguments=(experiment, *alone, *fixed, *own, *logging),
        group=label or spelled or config.name,
        seed=config.seed,
        updates=config.train.updates,
        point=short,
    )
    return run, loaded


def job(run: Run, resume: bool) -> Job:
    """Returns the command that starts a run, or goes on with it."""
    if resume:
        action = ["--resume", str(run.folder), *_as_asked_now(run)]
    else:
        action = [*run.arguments, "--out", str(run.folder)]
    return Job(run.name, [sys.executable, str(ROOT / "run.py"), "train", *action], log_of(run))


def _as_asked_now(run: Run) -> list[str]:
    """The overrides with which a run may be resumed: its servers, say, may have moved since it was killed."""
    names = {override: override.partition("=")[0] for override in run.arguments[1:]}
    return [
        override for override, name in names.items() if effect(name) in _FREE and name not in _BRING_OTHERS
    ]


def log_of(run: Run) -> Path:
    """Returns where a run's output goes."""
    return run.folder.parent / "logs" / f"{run.name}.log"
