"""Credit methods as files: `configs/credit/NAME.yaml`, with the settings each was published with.

A method file says `name` and `stages` in order. Where code of its authors is public it also says `published`:
for each environment, `source` (where the values were read) and options as in an experiment file. The plain
values of the stages are this project's and the same everywhere; the published ones are laid over them on
demand (`credit.settings`, see `configs.layers`). `published: OTHER` takes another method's settings: for a
method that is built on OTHER and has no public code of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from configs.old_keys import renamed
from configs.text import ConfigError, read_yaml, suggest

CONFIGS = Path(__file__).resolve().parent
_KEYS = ("name", "stages", "published")
_NOT_PUBLISHED = ("base", "name", "seed", "protocol")  # of an experiment file; a method has no say in them


@dataclass(frozen=True)
class Published:
    """What a method was published with in one environment.

    Attributes:
        label: The layer's name, for provenance.
        source: Where the values were read.
        tree: Options as in an experiment file; those of `credit` by stage.
    """

    label: str
    source: str
    tree: Mapping[str, Any]


@dataclass(frozen=True)
class Method:
    """A method file, read.

    Attributes:
        name: The method's name.
        file: The file, for provenance.
        stages: Options by stage, in order.
        published: Settings of its public code, by environment.
        hints: One line for each stage that the file calls by its old name.
    """

    name: str
    file: str
    stages: Mapping[str, Any]
    published: Mapping[str, Published] = field(default_factory=dict)
    hints: tuple[str, ...] = ()


def methods() -> list[str]:
    """Returns the names of the shipped credit methods, sorted."""
    return sorted(p.stem for p in (CONFIGS / "credit").glob("*.yaml"))


@cache
def known_stages() -> frozenset[str]:
    """Returns the names of the stages that the shipped methods are made of."""
    return frozenset(stage for method in methods() for stage in read_method(method).stages)


def read_method(method: str, label: str = "credit", chain: tuple[str, ...] = ()) -> Method:
    """Reads a method's file.

    Args:
        method: Name of a shipped one, or a path to a .yaml file.
        label: Who names it, for the message.
        chain: Methods whose `published` led here.

    Raises:
        ConfigError: No such method, or its file is not of the form above.
    """
    path = Path(method) if method.endswith(".yaml") else CONFIGS / "credit" / f"{method}.yaml"
    if not path.is_file():
        raise ConfigError(
            f"unknown credit method {method!r} ({label}){suggest(method, methods())} "
            f"There are: {', '.join(methods())}, or a path to a .yaml file with `name` and `stages`."
        )
    tree = mapping(read_yaml(path), "", path.name)
    if not {"name", "stages"} <= set(tree) <= set(_KEYS):
        raise ConfigError(
            f"{path} must have the keys name and stages, and may have published; it has "
            f"{', '.join(map(str, tree))}"
        )
    file = f"credit/{path.name}"
    mapping(tree["stages"], "stages", path.name)
    new, hints = renamed({"credit": {"stages": tree["stages"]}}, file)
    stages = new["credit"]["stages"]
    published = dict(_published(tree.get("published", {}), file, stages, (*chain, method)))
    return Method(str(tree["name"]), file, stages, published, hints)


def _published(
    value: Any, file: str, stages: Mapping[str, Any], chain: tuple[str, ...]
) -> Iterator[tuple[str, Published]]:
    """(environment, its settings) of a method file's `published`."""
    if isinstance(value, str):
        if value in chain:
            raise ConfigError(f"{file}: published goes round in a circle: {' → '.join((*chain, value))}")
        for environment, one in read_method(value, f"published of {file}", chain).published.items():
            credit = {k: v for k, v in one.tree.get("credit", {}).items() if k in stages}
            yield environment, Published(one.label, one.source, {**one.tree, "credit": credit})
        return
    for environment, options in mapping(value, "published", file).items():
        where = f"published.{environment}"
        tree = renamed(mapping(options, where, file), where)[0]
        source = tree.pop("source", None)
        if not isinstance(source, str):
            raise ConfigError(f"{file}: {where} must say its `source`: where the values were read")
        for key in set(tree) & set(_NOT_PUBLISHED):
            raise ConfigError(f"{file}: {where}.{key} is for an experiment to set, not for a method")
        for stage in mapping(tree.get("credit", {}), f"{where}.credit", file):
            if stage not in stages:
                raise ConfigError(f"{file}: {where}.credit.{stage}: the method has no such stage")
        yield str(environment), Published(f"{file}, published for {environment}", source, tree)


def mapping(value: Any, path: str, label: str) -> Mapping[str, Any]:
    """Returns `value`, which has to be a mapping.

    Raises:
        ConfigError: It is not one.
    """
    if not isinstance(value, Mapping):
        what = (
            f"`{path}` is a section: write `key: value` pairs"
            if path
            else "the file must hold `key: value` pairs"
        )
        raise ConfigError(f"{what} ({label}), got {value!r}")
    return value
