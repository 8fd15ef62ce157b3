"""Renders pages: escaping on, unknown names an error, figures formatted for people."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from eval.format import FILTERS

TEMPLATES = Path(__file__).parent / "templates"


def environment(folder: Path = TEMPLATES) -> Environment:
    """Returns an environment over the templates of `folder`."""
    made = Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= FILTERS
    return made
