"""What a run cost: time by phase and tokens."""

from __future__ import annotations

from eval.runfolder import RunFolder

PHASES = {
    "rollout": "time/rollout",
    "learner": "time/learner",
    "evaluation": "time/eval",
    "credit": "time/credit",
    "weights": "time/sync",
    "files": "time/store",
}
TOKENS = {
    "sampled": "rollout/tokens",
    "read as prompts": "rollout/prompt_tokens",
    "learner, in": "train/input_tokens",
    "learner, in the loss": "train/loss_tokens",
}


def phases(run: RunFolder) -> dict[str, float]:
    """Returns seconds by phase over all updates, `other` for the rest; {} before the first update."""
    whole = run.total("time/update")
    if whole is None:
        return {}
    parts = {phase: run.total(metric) for phase, metric in PHASES.items()}
    parts = {phase: seconds for phase, seconds in parts.items() if seconds is not None}
    # An evaluation of the starting policy comes before the first update, so it is no part of any.
    return {**parts, "other": max(whole - sum(parts.values()), 0.0)}


def tokens(run: RunFolder) -> dict[str, float]:
    """Returns tokens by use over all updates, of those that were logged."""
    totals = {use: run.total(metric) for use, metric in TOKENS.items()}
    return {use: total for use, total in totals.items() if total is not None}
