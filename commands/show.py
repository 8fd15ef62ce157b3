"""`run.py show`."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from commands.build import credit_pipeline, stage_docs
from configs.load import load
from configs.show import show


def run(experiment: str, overrides: Sequence[str], *, changed_only: bool) -> None:
    """Prints the options of an experiment after checking all that can be checked without its data."""
    loaded = load(experiment, overrides)
    credit_pipeline(loaded)
    console = Console()
    if not console.is_terminal:
        console = Console(width=200)  # a pipe has no width to fit
    show(loaded, stage_docs, console, changed_only=changed_only)
