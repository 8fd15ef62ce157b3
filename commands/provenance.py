"""The provenance that an evaluation's file records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from configs.schema import Config
from eval.manifest import Manifest
from eval.report import environment


def provenance(
    config: Config, checkpoint: Path | None, run_dir: Path | None, manifest: Manifest, listed: Path
) -> dict[str, Any]:
    """Returns, as plain values, which policy played which tasks, how, and with which source.

    Args:
        config: The evaluation's configuration.
        checkpoint: The run's checkpoint that was evaluated; None for the experiment's starting policy.
        run_dir: The run's folder, if a run was evaluated.
        manifest: The tasks.
        listed: The file that lists them.
    """
    evaluation, prompt = config.eval, config.prompt
    return {
        "experiment": config.name,
        "run": run_dir and run_dir.resolve().name,
        "credit": config.credit.name if run_dir else None,
        "model": config.model.path,
        "checkpoint": checkpoint and str(checkpoint),
        "update": int(checkpoint.name) if checkpoint else 0,
        "split": evaluation.split,
        "manifest": {"file": str(listed), **manifest.summary()},
        "sampling": {
            "temperature": evaluation.temperature,
            "seed": config.seed,
            "max_response_tokens": prompt.max_response_tokens,
            "max_steps": config.env.max_steps,
        },
        "prompt": {
            "template": prompt.template,
            "form": prompt.form,
            "history": prompt.history,
            "window": prompt.window,
        },
        "environment": environment.describe(),
    }
