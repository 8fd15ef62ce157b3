"""Laying one configuration layer over another, leaf by leaf, with the source of each leaf.

Naming another credit method, scorer or world drops the options of the old one, which would mean nothing (or
something else) to the new one. Options of a credit stage that both methods have stay: `credit=gigpo` changes
how credit is given, not the reward or the penalty.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, get_origin

from pydantic import BaseModel

from configs.check import is_section, unknown_option
from configs.layers import COMMAND_LINE, Layer
from configs.methods import mapping, methods, read_method
from configs.schema import Config
from configs.text import ConfigError, suggest


@dataclass
class Merged:
    """The layers merged so far: nested values and the source of each dotted leaf."""

    values: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    # (stage, option, value, label) in the order of the layers
    _stage_options: list[tuple[str, str, Any, str]] = field(default_factory=list)

    def add(self, layer: Layer) -> None:
        """Lays a layer over the values so far.

        Raises:
            ConfigError: An unknown key or credit method, or a value where a section belongs.
        """
        self._section(Config, self.values, layer.tree, "", layer)

    def _section(
        self, model: type[BaseModel], into: dict[str, Any], tree: Mapping[str, Any], prefix: str, layer: Layer
    ) -> None:
        label = layer.label
        # The name first: the options beside it belong to the scorer or world that it names.
        for key, value in sorted(tree.items(), key=lambda item: item[0] != "name"):
            path = f"{prefix}{key}"
            if path == "credit":
                self._credit(value, layer)
                continue
            info = model.model_fields.get(key)
            if info is None:
                raise unknown_option(path, label)
            if is_section(info.annotation):
                below = mapping(value, path, label)
                self._section(info.annotation, into.setdefault(key, {}), below, f"{path}.", layer)
            elif get_origin(info.annotation) is dict:
                for name, option in mapping(value, path, label).items():
                    into.setdefault(key, {})[name] = option
                    self.sources[f"{path}.{name}"] = label
            else:
                if path in ("scorer.name", "env.name") and value != into.get(key, info.default):
                    self._forget(into, "options", f"{prefix}options.")
                into[key], self.sources[path] = value, label

    def _credit(self, value: Any, layer: Layer) -> None:
        label = layer.label
        tree = {"method": value} if isinstance(value, str) else dict(mapping(value, "credit", label))
        if "stages" in tree:
            if label == COMMAND_LINE:
                raise ConfigError("on the command line write credit.STAGE.option=value, without `stages`")
            self._choose(
                tree.pop("name", "custom"), mapping(tree.pop("stages"), "credit.stages", label), label
            )
        if "method" in tree:
            method = str(tree.pop("method"))
            found = read_method(method, label)
            if found.name != self.values.get("credit", {}).get("name"):
                self._choose(found.name, found.stages, found.file)
                for stage, key, option, source in self._stage_options:
                    if stage in found.stages:
                        self._set_option(stage, key, option, source)
            self.sources["credit.name"] = label
        credit = self.values.setdefault("credit", Config().credit.model_dump())
        if "settings" in tree:
            credit["settings"], self.sources["credit.settings"] = tree.pop("settings"), label
        for stage, options in tree.items():
            if stage not in credit["stages"] and not layer.shared:
                raise _unknown_stage(stage, credit, label)
            for key, option in mapping(options, f"credit.{stage}", label).items():
                if stage in credit["stages"]:
                    self._set_option(stage, key, option, label)
                self._stage_options.append((stage, key, option, label))

    def _set_option(self, stage: str, key: str, option: Any, label: str) -> None:
        self.values["credit"]["stages"][stage][key] = option
        self.sources[f"credit.stages.{stage}.{key}"] = label

    def _choose(self, name: str, stages: Mapping[str, Any], label: str) -> None:
        copied = {
            stage: dict(mapping(o or {}, f"credit.stages.{stage}", label)) for stage, o in stages.items()
        }
        credit = self.values.setdefault("credit", Config().credit.model_dump())
        self.sources = {k: v for k, v in self.sources.items() if not k.startswith("credit.stages.")}
        credit |= {"name": name, "stages": copied}
        self.sources["credit.name"] = label
        for stage, options in copied.items():
            self.sources |= {f"credit.stages.{stage}.{key}": label for key in options}

    def _forget(self, into: dict[str, Any], key: str, prefix: str) -> None:
        into.pop(key, None)
        self.sources = {path: label for path, label in self.sources.items() if not path.startswith(prefix)}


def _unknown_stage(stage: str, credit: Mapping[str, Any], label: str) -> ConfigError:
    stages = ", ".join(credit["stages"])
    hint = suggest(stage, credit["stages"], prefix="credit.")
    return ConfigError(
        f"unknown option `credit.{stage}` ({label}): the method {credit['name']!r} has the stages "
        f"{stages}{hint} "
        f"Another method is chosen with credit=NAME, one of {', '.join(methods())}."
    )
