"""The registry of stages is the folder `credit/stages/`: its file `NAME.py` defines the stage NAME."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache
from typing import Any

import credit.stages
from configs.params import did_you_mean
from credit.base import Stage


@cache
def all_stages() -> Mapping[str, type[Stage]]:
    """Every stage by name.

    Raises:
        ImportError: if a file of the folder defines no stage, or several.
    """
    found = {}
    for module in pkgutil.iter_modules(credit.stages.__path__):
        namespace = vars(importlib.import_module(f"credit.stages.{module.name}"))
        classes = [
            c
            for c in namespace.values()
            if isinstance(c, type) and issubclass(c, Stage) and c.__module__ == namespace["__name__"]
        ]
        if len(classes) != 1:
            raise ImportError(
                f"credit/stages/{module.name}.py defines {len(classes)} stages, expected one; "
                "helpers belong to credit/parts/"
            )
        found[module.name] = classes[0]
    return found


def build_stage(name: str, parameters: Mapping[str, Any]) -> Stage:
    """The stage `name` with these parameters; what is unknown or out of range is a ValueError."""
    if name not in all_stages():
        raise ValueError(f"credit: no stage {name!r}{did_you_mean(name, all_stages())}")
    return all_stages()[name].of(parameters)
