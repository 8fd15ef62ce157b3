"""`run.py show`."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from commands.build.declared import DOCS, check_world, credit_pipeline
from configs.against import other, show_against
from configs.load import load
from configs.show import show


def run(experiment: str, overrides: Sequence[str], *, changed_only: bool, against: str | None = None) -> None:
    """Prints the options of an experiment after checking all that can be checked without its data.

    Args:
        experiment: As on the command line.
        overrides: As on the command line.
        changed_only: Leave out what is still the default.
        against: Print what differs from this protocol or experiment instead.
    """
    loaded = load(experiment, overrides)
    check_world(loaded)
    credit_pipeline(loaded)
    console = Console()
    if not console.is_terminal:
        console = Console(width=200)  # a pipe has no width to fit
    if against is not None:
        theirs, protocol = other(experiment, overrides, against)
        check_world(theirs)
        credit_pipeline(theirs)
        show_against(loaded, theirs, against, protocol, DOCS, console)
        return
    show(loaded, DOCS, console, changed_only=changed_only)
