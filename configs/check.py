"""Validation against the schema, with errors that name the option, its source and the nearest right one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from configs.schema import Config, Section
from configs.text import ConfigError, suggest

DEFAULT = "default"


def validate(tree: Mapping[str, Any], sources: Mapping[str, str], where: str = "") -> Config:
    """Returns the configuration that `tree` describes.

    Args:
        tree: Nested values as merged from the layers.
        sources: The layer of each dotted option, for the messages.
        where: The source of all options, if they share one.

    Raises:
        ConfigError: One line for each value that does not fit.
    """
    try:
        return Config.model_validate(tree)
    except ValidationError as error:
        lines = [_explain(item, sources, where) for item in error.errors()]
    raise ConfigError("\n".join(lines))


def unknown_option(path: str, label: str) -> ConfigError:
    """Returns the error for a dotted path the schema does not have."""
    known = list(_paths(Config))
    leaf = path.rsplit(".", 1)[-1]
    same = [f"`{p}`" for p in known if p.rsplit(".", 1)[-1] == leaf]
    hint = f": did you mean {' or '.join(same)}?" if same else suggest(path, known)
    return ConfigError(
        f"unknown option `{path}` ({label}){hint} `python run.py show EXPERIMENT` lists every option."
    )


def is_section(annotation: Any) -> bool:
    """Whether a field's annotation is a section of the schema."""
    return isinstance(annotation, type) and issubclass(annotation, Section)


def _paths(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for key, info in model.model_fields.items():
        yield f"{prefix}{key}"
        if is_section(info.annotation):
            yield from _paths(info.annotation, f"{prefix}{key}.")


def _explain(item: Mapping[str, Any], sources: Mapping[str, str], where: str) -> str:
    """One line for one pydantic error: the option, what it must be, what came and from where."""
    path = ".".join(str(part) for part in item["loc"])
    message = item["msg"].removeprefix("Value error, ").replace("Input should", "must")
    if not path:
        return message
    named = [
        source
        for leaf, source in sources.items()
        if path == leaf or path.startswith(f"{leaf}.") or leaf.startswith(f"{path}.")
    ]
    label = where or (named[0] if named else DEFAULT)
    if item["type"] == "extra_forbidden":
        return str(unknown_option(path, label))
    hint = suggest(str(item["input"]), _choices(item["loc"])) if item["type"] == "literal_error" else "."
    return f"`{path}` {message}, got {item['input']!r} ({label}){hint}"


def _choices(loc: Sequence[Any]) -> list[str]:
    model: Any = Config
    for part in loc:
        model = model.model_fields[part].annotation
    return [str(choice) for choice in get_args(model)]
