"""Reads YAML safely, and helps to word errors."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from configs.errors import UserError


class ConfigError(UserError, ValueError):
    """The configuration cannot be used; the message says what, where and what to do."""


def suggest(word: str, known: Iterable[str], prefix: str = "") -> str:
    """Returns ": did you mean `…`?" for the closest of `known`, or "." if none is close."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f": did you mean `{prefix}{close[0]}`?" if close else "."


class _Loader(yaml.SafeLoader):
    """YAML 1.2 scalars (`3e-6` is a number, `off` is a word), and no key twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} is there twice", key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep)


# PyYAML follows YAML 1.1: there `3e-6` is a string and `off` is false.
_Loader.yaml_implicit_resolvers = {
    first: [
        (tag, regexp)
        for tag, regexp in pairs
        if tag not in ("tag:yaml.org,2002:bool", "tag:yaml.org,2002:float")
    ]
    for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(?:true|false)$"), list("tf"))
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?$|^[-+]?\.inf$|^\.nan$"),
    list("-+.0123456789"),
)


def read_yaml(source: Path | str, name: str = "") -> Any:
    """Reads a YAML file, or a YAML text that errors call `name`.

    Raises:
        ConfigError: It is not YAML, or a mapping has a key twice.
    """
    text = source.read_text(encoding="utf-8") if isinstance(source, Path) else source
    try:
        return yaml.load(text, Loader=_Loader)  # noqa: S506  (a SafeLoader)
    except yaml.YAMLError as error:
        raise ConfigError(f"cannot read {name or source} as YAML: {error}") from error
