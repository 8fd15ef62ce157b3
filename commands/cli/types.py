"""Arguments that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

_EXPERIMENT = "A file in configs/ (without .yaml), or a path to a .yaml file."
Experiment = Annotated[str, typer.Argument(help=_EXPERIMENT)]
MaybeExperiment = Annotated[str | None, typer.Argument(help=_EXPERIMENT)]
Overrides = Annotated[
    list[str] | None, typer.Argument(metavar="[key=value]…", help="Overrides, later ones win.")
]
Host = Annotated[
    str, typer.Option(help="Address to listen on; 0.0.0.0 lets other machines in (needs a token).")
]
Certificate = Annotated[Path | None, typer.Option(help="For HTTPS, with --private-key.")]
PrivateKey = Annotated[Path | None, typer.Option(help="For HTTPS, with --certificate.")]
Rate = Annotated[float, typer.Option(min=1.0, help="Limit of requests per second from one address.")]


def arguments(experiment: str | None, overrides: list[str] | None) -> tuple[str | None, list[str]]:
    """Returns experiment and overrides: without an experiment (`train --resume RUN key=value`) the first
    override is parsed in its place.
    """
    if experiment is not None and "=" in experiment:
        return None, [experiment, *(overrides or [])]
    return experiment, overrides or []
