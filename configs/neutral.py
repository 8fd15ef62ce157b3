"""Options that do not change what a run is: the one table, for reports, sweeps and resumed runs.

An option that is not listed matters. This is plain data, so that modules that must not import the schema can
read it; a test compares it with the schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

Effect = Literal["nothing", "measured", "rounding"]
NOTHING: Effect = "nothing"
"""Every figure is the same to the last bit."""
MEASURED: Effect = "measured"
"""The run is the same to the last bit, but other things are measured on its way."""
ROUNDING: Effect = "rounding"
"""The same run except for the order of floating-point sums, as on another machine."""

NEUTRAL: Mapping[str, tuple[Effect, str]] = {
    "name": (NOTHING, "a label"),
    "logging": (NOTHING, "where figures go"),
    "checkpoint": (NOTHING, "what is kept of the weights"),
    "protocol": (NOTHING, "a label; each option that it sets matters by itself"),
    "credit.settings": (NOTHING, "as protocol"),
    "env.workers": (NOTHING, "where environments are played; trajectories are equal bit for bit"),
    "env.urls": (NOTHING, "as env.workers"),
    "env.token_file": (NOTHING, "a password"),
    "env.timeout_s": (NOTHING, "when another server is asked"),
    "env.patience_s": (
        NOTHING,
        "when a trajectory is given up because no server answers",
    ),
    "rollout.watchdog_s": (NOTHING, "when a run that hangs is ended"),
    "generator.token_file": (NOTHING, "a password"),
    "generator.transfer": (NOTHING, "how weights travel; the same bytes arrive"),
    "generator.folder": (NOTHING, "as generator.transfer"),
    "generator.timeout_s": (NOTHING, "when a server that does not answer is given up"),
    "generator.checksum": (NOTHING, "a check"),
    "generator.tolerance": (NOTHING, "a check"),
    "train.timeout_s": (NOTHING, "when a process that does not answer is given up"),
    "eval.every": (MEASURED, "how often the policy is evaluated on the way"),
    "rollout.early_stop": (MEASURED, "stops groups that would be cut; rollout metrics leave them out"),
    "processes": (ROUNDING, "sums are split among the processes, responses computed together are others"),
    "threads": (ROUNDING, "sums are split among the threads"),
    "rollout.max_parallel": (ROUNDING, "responses sampled together; the draws are each trajectory's own"),
    "eval.max_parallel": (ROUNDING, "as rollout.max_parallel"),
    "generator.memory": (ROUNDING, "how many responses vLLM computes together"),
    "generator.batched_tokens": (ROUNDING, "as generator.memory"),
    "generator.eager": (ROUNDING, "other kernels for the same numbers"),
    "generator.urls": (ROUNDING, "which responses are computed together"),
    "model.gradient_checkpointing": (ROUNDING, "activations are computed again instead of kept"),
    "train.token_budget": (ROUNDING, "rows computed together; the gradient is a sum over all of them"),
    "train.zero_stage": (ROUNDING, "where DeepSpeed keeps and sums what"),
    "train.reference": (NOTHING, "where weights wait that are the same when they score"),
    "train.offload": (ROUNDING, "the optimiser's sums are made by the CPU"),
}
"""Option, or a whole section → (what a change of it changes, why)."""

OLD: Mapping[str, tuple[Effect, str]] = {"wandb": (NOTHING, "now logging")}
"""The same for sections that only the run folders of older versions have."""


def effect(option: str) -> Effect | None:
    """Returns what a change of a dotted option changes; None if the run becomes another one."""
    parts = option.split(".")
    for table in (NEUTRAL, OLD):
        for n in range(len(parts), 0, -1):
            if (found := table.get(".".join(parts[:n]))) is not None:
                return found[0]
    return None


def without(tree: Mapping[str, Any], effects: tuple[Effect, ...], prefix: str = "") -> dict[str, Any]:
    """Returns a nested configuration without the options whose change has one of these effects."""
    kept = {}
    for key, value in tree.items():
        path = f"{prefix}{key}"
        if effect(path) in effects:
            continue
        kept[key] = without(value, effects, f"{path}.") if isinstance(value, Mapping) else value
    return kept
