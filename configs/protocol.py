"""Training protocols: choices that change a method's figures but that papers seldom mention, one file each.

`configs/protocol/NAME.yaml` has `about`, `switches` (each a `set` of dotted options with their values, and
one line on what it `changes`), and may have `settings` (more options, which all agree on, as in an experiment
file), `only` (the same for one environment) and `not_reproduced` (what no option can reproduce, and why).
`protocol: NAME` lays it over an experiment, see `configs.layers`; `run.py show EXPERIMENT --against
protocol/NAME` compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from configs.methods import CONFIGS, mapping
from configs.text import ConfigError, read_yaml, suggest

FOLDER = CONFIGS / "protocol"
_KEYS = {"about", "switches", "settings", "only", "not_reproduced"}


@dataclass(frozen=True)
class Protocol:
    """A protocol file, read.

    Attributes:
        label: The layer's name, for provenance.
        about: What it is.
        changes: Dotted option (as on the command line) → what this choice changes.
        switches: The switches as a tree of options.
        settings: The other options, as a tree.
        only: More options per environment, as trees.
        not_reproduced: What it cannot reproduce, one sentence each.
    """

    label: str
    about: str
    changes: Mapping[str, str]
    switches: Mapping[str, Any]
    settings: Mapping[str, Any]
    only: Mapping[str, Mapping[str, Any]]
    not_reproduced: tuple[str, ...]

    def trees(self, environment: str) -> tuple[Mapping[str, Any], ...]:
        """Returns its options for an environment: trees, of which later ones override earlier ones."""
        return self.settings, self.only.get(environment, {}), self.switches


def protocols(folder: Path = FOLDER) -> list[str]:
    """Returns the names of the shipped protocols, sorted."""
    return sorted(p.stem for p in folder.glob("*.yaml"))


def read_protocol(name: str, label: str = "protocol") -> Protocol:
    """Reads a protocol's file.

    Args:
        name: A shipped protocol, or a path to a .yaml file.
        label: Where it is named, for the message.

    Raises:
        ConfigError: No such protocol, or its file is not of the form above.
    """
    path = Path(name) if name.endswith(".yaml") else FOLDER / f"{name}.yaml"
    if not path.is_file():
        raise ConfigError(
            f"unknown protocol {name!r} ({label}){suggest(name, protocols())} "
            f"There are: {', '.join(protocols())}, or a path to a .yaml file with `switches`."
        )
    file = f"protocol/{path.name}"
    tree = mapping(read_yaml(path), "", file)
    if not set(tree) <= _KEYS:
        raise ConfigError(f"{path} may have the keys {', '.join(sorted(_KEYS))}; it has {', '.join(tree)}")
    changes: dict[str, str] = {}
    switches: dict[str, Any] = {}
    for number, switch in enumerate(tree.get("switches", [])):
        where = f"switches[{number}]"
        if set(mapping(switch, where, file)) != {"set", "changes"}:
            raise ConfigError(f"{file}: {where} must have the keys set and changes, has {', '.join(switch)}")
        for option, value in mapping(switch["set"], f"{where}.set", file).items():
            changes[option] = str(switch["changes"])
            put(switches, option, value, f"{file}: the switch {option!r}")
    return Protocol(
        label=file,
        about=str(tree.get("about", "")),
        changes=changes,
        switches=switches,
        settings=mapping(tree.get("settings", {}), "settings", file),
        only={
            environment: mapping(options, f"only.{environment}", file)
            for environment, options in mapping(tree.get("only", {}), "only", file).items()
        },
        not_reproduced=tuple(map(str, tree.get("not_reproduced", []))),
    )


def put(tree: dict[str, Any], path: str, value: Any, label: str) -> None:
    """Sets a dotted option in a tree; `label` says where the option stands, for the message.

    Raises:
        ConfigError: A part of the path has a value and is no section.
    """
    *parents, last = path.split(".")
    node = tree
    for key in parents:
        node = node.setdefault(key, {})
        if not isinstance(node, dict):
            raise ConfigError(f"{label} sets an option inside {key!r}, which has the value {node!r}")
    node[last] = value


def flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Returns the options of a tree by dotted path."""
    found: dict[str, Any] = {}
    for key, value in tree.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return found
