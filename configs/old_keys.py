"""Old names of options: old files, command lines and run folders go on working."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

STAGES = {"branch": "tree_search"}
"""Old name of a credit stage → its name."""

_WEBSHOP = {
    "products": 1000,
    "goals": "synthetic",
    "rule": "by_product",
    "order": 233,
    "mode": "text",
    "results_a_page": 10,
    "ids": "asin",
    "show_instruction": True,
    "show_attributes": False,
    "partial_reward": False,
}
"""Defaults of the old section `env.webshop`: a run folder lists every option, also those that nobody set."""


def renamed(
    tree: Mapping[str, Any], label: str, world: str = "webshop", *, named: bool = True
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Returns a layer under today's names, and one line for each old name.

    Args:
        tree: Options as in an experiment file.
        label: Where the options stand.
        world: What `env.name` is in the end: other worlds have always ignored `env.webshop`.
        named: Whether a layer below names that world.
    """
    new, hints = dict(tree), []
    env = new.get("env")
    if isinstance(env, Mapping) and isinstance(env.get("webshop"), Mapping):
        section = dict(env)
        old = section.pop("webshop")
        if world == "webshop":
            if not named:  # a layer above does, and would drop the options of another world
                section["name"] = world
            section["options"] = {**old, **(section.get("options") or {})}
            hints += [f"`env.webshop.{key}` ({label}) is called `env.options.{key}` now" for key in old]
        else:
            hints += [f"`env.webshop.{key}` ({label}) is ignored: env.name is {world}" for key in old]
        new["env"] = section
    credit = new.get("credit")
    if isinstance(credit, Mapping):
        section, old_names = _stages(credit)
        if isinstance(credit.get("stages"), Mapping):
            section["stages"], listed = _stages(credit["stages"])
            old_names |= listed
        new["credit"] = section
        hints += [
            f"the credit stage `{old}` ({label}) is called `{STAGES[old]}` now" for old in sorted(old_names)
        ]
    return new, tuple(hints)


def recorded(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a run folder's configuration (it lists every option) as this version would have written it."""
    config = {"processes": 1, **config}  # before there was the option, one process was the default
    env = config.get("env")
    if isinstance(env, Mapping) and isinstance(env.get("webshop"), Mapping):
        known = env["webshop"] if env.get("name") == "webshop" else {}
        chosen = {key: value for key, value in known.items() if key not in _WEBSHOP or value != _WEBSHOP[key]}
        config = {**config, "env": {**env, "webshop": chosen}}
    return renamed(config, "")[0]


def recorded_key(key: str) -> str:
    """Returns today's name of a dotted key in a run folder's sources.json."""
    parts = key.split(".")
    if parts[:2] == ["env", "webshop"]:
        parts[1] = "options"
    if parts[:2] == ["credit", "stages"] and len(parts) > 2:
        parts[2] = STAGES.get(parts[2], parts[2])
    return ".".join(parts)


def first_names(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a configuration under the oldest names of its options.

    The digests in the names of sweeps' folders are made of these, so that renaming an option repeats no run.
    """
    env, credit = dict(config["env"]), config["credit"]
    shop = env.pop("options") if env["name"] == "webshop" else {}
    first = {new: old for old, new in STAGES.items()}
    stages = {first.get(stage, stage): options for stage, options in credit["stages"].items()}
    return {
        **config,
        "env": {"options": {}, **env, "webshop": {**_WEBSHOP, **shop}},
        "credit": {**credit, "stages": stages},
    }


def stages_renamed(stages: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a method's stages under today's names, in their order."""
    return _stages(stages)[0]


def _stages(tree: Mapping[str, Any]) -> tuple[dict[str, Any], set[str]]:
    return {STAGES.get(key, key): value for key, value in tree.items()}, set(tree) & set(STAGES)
