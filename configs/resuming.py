"""Which changes of its configuration make a resumed run another run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from configs.neutral import effect

_MISSING = "(absent)"


def config_differences(saved: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Lists the options that differ and would make a resumed run another run.

    Free to differ: what changes no result, or only its rounding (`configs.neutral`; an engine refuses a state
    that it cannot turn into its own); and the number of updates as long as the learning rate does not depend
    on it (a constant schedule).

    Returns:
        Lines `key: saved → now`, sorted by key.
    """
    before, after = _flat(saved), _flat(now)
    constant = after.get("train.lr_schedule") == "constant"
    lines = []
    for key in sorted({*before, *after}):
        old, new = before.get(key, _MISSING), after.get(key, _MISSING)
        free = effect(key) is not None or (key == "train.updates" and constant)
        if old != new and not free:
            lines.append(f"{key}: {old} → {new}")
    return lines


def _flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = list(value) if isinstance(value, tuple) else value
    return flat
