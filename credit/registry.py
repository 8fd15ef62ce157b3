"""The registry of stages is this folder: `credit/<name>.py` defines the stage `<name>`.

Files that start with an underscore, and those of `_SUPPORT`, are helpers.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

from credit.base import Stage, did_you_mean

_SUPPORT = {"base", "table", "statistics", "registry", "pipeline", "parity"}


@cache
def stages() -> Mapping[str, type[Stage]]:
    """Every stage by name.

    Raises:
        ImportError: if a file of the folder defines no stage, or several.
    """
    found = {}
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        if module.ispkg or module.name in _SUPPORT or module.name.startswith("_"):
            continue
        namespace = vars(importlib.import_module(f"credit.{module.name}"))
        classes = [
            c
            for c in namespace.values()
            if isinstance(c, type) and issubclass(c, Stage) and c.__module__ == namespace["__name__"]
        ]
        if len(classes) != 1:
            raise ImportError(
                f"credit/{module.name}.py defines {len(classes)} stages, expected one; "
                "a helper's file name starts with _"
            )
        found[module.name] = classes[0]
    return found


def build(name: str, parameters: Mapping[str, Any]) -> Stage:
    """The stage `name` with these parameters; what is unknown or out of range is a ValueError."""
    if name not in stages():
        raise ValueError(f"credit: no stage {name!r}{did_you_mean(name, stages())}")
    known = {f.name for f in fields(stages()[name])}
    for key in parameters:
        if key not in known:
            raise ValueError(f"credit.{name}: no parameter {key!r}{did_you_mean(str(key), known)}")
    return stages()[name](**parameters)
