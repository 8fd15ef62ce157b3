"""Arguments that many commands share, declared once."""

from __future__ import annotations

from typing import Annotated

import typer

_EXPERIMENT = "A file in configs/ (without .yaml), or a path to a .yaml file."

Experiment = Annotated[str, typer.Argument(help=_EXPERIMENT)]
MaybeExperiment = Annotated[str | None, typer.Argument(help=_EXPERIMENT)]
Overrides = Annotated[
    list[str] | None, typer.Argument(metavar="[key=value]…", help="Overrides, later ones win.")
]
