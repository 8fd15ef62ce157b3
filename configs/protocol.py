"""Training protocols: the choices between a paper's method and its figures, one file each.

`configs/protocol/NAME.yaml` says `about`, `switches` (each a `set` of dotted options with their values, and
in one line what it `changes`), and may say `settings` (more options, as in an experiment file, that nobody
disputes), `only` (the same for one environment) and `not_reproduced` (what no option reaches, and why). It
is laid over an experiment by `protocol: NAME`, see `configs.layers`, and compared with one by
`run.py show EXPERIMENT --against protocol/NAME`.
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
        only: More of them by environment.
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
        """Returns what it says for an environment: trees of options, later ones over earlier ones."""
        return self.settings, self.only.get(environment, {}), self.switches


def protocols(folder: Path = FOLDER) -> list[str]:
    """Returns the names of the shipped protocols, sorted."""
    return sorted(p.stem for p in folder.glob("*.yaml"))


def read_protocol(name: str, label: str = "protocol") -> Protocol:
    """Reads a protocol's file.

    Args:
        name: Of a shipped one, or a path to a .yaml file.
        label: Who names it, for the message.

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
    """Sets a dotted option in a tree; `label` is who does so.

    Raises:
        ConfigError: The path goes through a value.
    """
    *parents, last = path.split(".")
    node = tree
    for key in parents:
        node = node.setdefault(key, {})
        if not isinstance(node, dict):
            raise ConfigError(f"{label} reaches into {key!r}, which another one set to {node!r}")
    node[last] = value


def flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Returns the options of a tree by dotted path."""
    found: dict[str, Any] = {}
    for key, value in tree.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return found
