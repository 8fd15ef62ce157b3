"""Ablation files: an experiment, its variants, the seeds they share and what they are compared with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from configs.text import ConfigError, read_yaml, suggest
from eval.experiments.spec import Part, validate


class DeclaredVariant(Part):
    """One row of the table.

    Attributes:
        set: Options that make it, `key.path: value`.
        reported: What the paper reports for it, if anything.
        if_available: Leave it out, and say so, where its scorer cannot be loaded.
    """

    set: dict[str, Any] = Field(default_factory=dict)
    reported: str | None = None
    if_available: bool = False


class AblationFile(Part):
    """The file; `base: NAME` takes what it does not say from another one beside it.

    Attributes:
        title: Of the table.
        experiment: As on the command line.
        overrides: Options of all runs.
        seeds: Every variant is run with each.
        reference: The variant that the others are compared with.
        variants: Name → what makes it.
        without: Variants of the base left out.
    """

    title: str
    experiment: str
    overrides: dict[str, Any] = Field(default_factory=dict)
    seeds: list[int] = Field(min_length=1)
    reference: str
    variants: dict[str, DeclaredVariant]
    without: list[str] = Field(default_factory=list)


def read_ablation(path: Path) -> AblationFile:
    """Reads an ablation.

    Raises:
        ConfigError: One line for each thing that does not fit.
    """
    ablation = validate(AblationFile, _tree(path), path)
    for name in ablation.without:
        if name not in ablation.variants:
            raise ConfigError(
                f"{path}: no variant is called {name!r} (`without`){suggest(name, ablation.variants)}"
            )
    left = {name: one for name, one in ablation.variants.items() if name not in ablation.without}
    ablation = ablation.model_copy(update={"variants": left})
    if len(ablation.variants) < 2:
        raise ConfigError(f"{path}: `variants` needs at least two, the reference and another")
    if ablation.reference not in ablation.variants:
        hint = suggest(ablation.reference, ablation.variants)
        raise ConfigError(f"{path}: no variant is called {ablation.reference!r} (`reference`){hint}")
    if len(set(ablation.seeds)) < len(ablation.seeds):
        raise ConfigError(f"{path}: `seeds` lists one twice: {ablation.seeds}")
    return ablation


def _tree(path: Path) -> dict[str, Any]:
    raw = read_yaml(path)
    if not isinstance(raw, Mapping):
        raise ConfigError(f"{path} must hold `key: value` pairs (title, experiment, seeds, variants, …)")
    tree = dict(raw)
    base = tree.pop("base", None)
    if base is None:
        return tree
    below = path.parent / f"{base}.yaml"
    if not below.is_file():
        raise ConfigError(f"{path}: no file {below} (`base`)")
    lower = _tree(below)
    return lower | tree | {"overrides": {**lower.get("overrides", {}), **tree.get("overrides", {})}}
