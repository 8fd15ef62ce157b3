"""Layers of a configuration, and where each value came from.

    defaults (configs.schema)  <  base files  <  experiment file  <  command line

An experiment is a YAML file in `configs/` (or a path to one). Its `base:` names the files it builds
on. The command line gives `key.path=value`. The credit method is chosen as a whole: `credit: scpo`
(or `credit=scpo`) takes the stages of `configs/credit/scpo.yaml`, and `credit: {method: scpo, scpo:
{theta: 0.9}}` (or `credit.scpo.theta=0.9`) changes one of them. `protocol: NAME` and `credit.settings:
published` bring layers of their own, see `configs.layers`. Inside a run folder the result is
`config.json`, which reloads exactly: it includes what those layers set.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from configs.check import DEFAULT, validate
from configs.layers import COMMAND_LINE, Layer, final_value, resolve
from configs.merge import Merged
from configs.methods import CONFIGS, mapping
from configs.old_keys import recorded, renamed
from configs.protocol import put
from configs.schema import Config
from configs.text import ConfigError, read_yaml, suggest


@dataclass(frozen=True)
class Loaded:
    """A configuration and the layer each of its leaves came from (leaves not listed: defaults).

    Attributes:
        notes: Renamed options and requests that had no effect, one line each.
    """

    config: Config
    sources: Mapping[str, str]
    notes: tuple[str, ...] = ()

    def source(self, path: str) -> str:
        """Returns `default`, a file name, or `command line` for a dotted leaf path."""
        return self.sources.get(path, DEFAULT)


def load(experiment: str, overrides: Sequence[str] = (), *, over: Mapping[str, Any] | None = None) -> Loaded:
    """Builds the configuration of an experiment.

    Args:
        experiment: Name of a file in configs/ (without .yaml), or a path to a .yaml file.
        overrides: `key.path=value` items, later ones win.
        over: Options that override all of these, for comparisons.

    Raises:
        ConfigError: Unknown experiment, key, method, protocol or value; a value out of range; an impossible
            combination.
    """
    path = find(experiment)
    named = Layer(path.name, {"name": path.stem})  # unless a file sets another name
    layers = [named, *_layers(path, ()), Layer(COMMAND_LINE, _parse(overrides))]
    return _merge(layers if over is None else [*layers, Layer("over all", over)])


def load_run(run_dir: Path, overrides: Sequence[str] = ()) -> Loaded:
    """Builds the configuration of a run again, with overrides.

    The run's values include what its protocol and published settings set. These are applied again only if an
    override names them, or another method.

    Raises:
        ConfigError: `run_dir` is no run folder, or as in `load`.
    """
    path = run_dir / "config.json"
    saved = read_config(path).model_dump(mode="json")
    asked = {"protocol": saved.pop("protocol"), "credit": {"settings": saved["credit"].pop("settings")}}
    given = _parse(overrides)
    if "method" in given.get("credit", {}):
        given["credit"] = asked["credit"] | given["credit"]
    return _merge([Layer(str(path), saved), Layer(COMMAND_LINE, given)], below=Layer(str(path), asked))


def _merge(layers: Sequence[Layer], below: Layer | None = None) -> Loaded:
    """Merges layers and those they ask for; `below` lies under all of them and asks for nothing."""
    merged = Merged()
    found, notes = resolve(layers)
    hints: list[str] = []
    world = final_value(found, "env", "name")
    for layer in [*([] if below is None else [below]), *found]:
        named = merged.values.get("env", {}).get("name") == world
        tree, old = renamed(layer.tree, layer.label, world, named=named)
        merged.add(replace(layer, tree=tree))
        hints += old
    return Loaded(validate(merged.values, merged.sources), merged.sources, (*hints, *notes))


def find(experiment: str, folder: Path = CONFIGS) -> Path:
    """Returns the file of an experiment named as on the command line.

    Raises:
        ConfigError: There is no such file.
    """
    if experiment.endswith(".yaml"):
        path = Path(experiment)
        hint = "."
    else:
        path = folder / f"{experiment}.yaml"
        hint = suggest(experiment, [p.stem for p in experiments(folder)])
    if not path.is_file():
        known = ", ".join(p.stem for p in experiments(folder))
        raise ConfigError(
            f"no experiment {experiment!r}{hint} There are: {known}, or give a path to a .yaml file."
        )
    return path


def experiments(folder: Path = CONFIGS) -> list[Path]:
    """Returns the shipped experiment files, sorted."""
    return sorted(folder.glob("*.yaml"))


def write_config(config: Config, path: Path) -> None:
    """Writes `config` so that `read_config` gives back an equal one."""
    path.write_text(json.dumps(plain(config), indent=2) + "\n", encoding="utf-8")


def plain(config: Config) -> dict[str, Any]:
    """Returns a configuration as nested plain values, as `write_config` writes them."""
    return config.model_dump(mode="json")


def read_config(path: Path) -> Config:
    """Reads what `write_config` wrote.

    Raises:
        ConfigError: No such file, or it does not fit this version's schema.
    """
    if not path.is_file():
        raise ConfigError(f"no {path}: is {path.parent} the folder of a run?")
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ConfigError(f"{path} is not JSON ({error}): restore it, or start the run again") from error
    return validate(recorded(tree), {}, where=str(path))


def _layers(path: Path, above: tuple[Path, ...]) -> Iterator[Layer]:
    """Yields the layers from the lowest base file up to `path` itself."""
    path = path.resolve()
    if path in above:
        raise ConfigError(f"base files go round in a circle: {' → '.join(p.name for p in (*above, path))}")
    tree = dict(mapping(read_yaml(path) or {}, "", path.name))
    bases = tree.pop("base", [])
    for base in [bases] if isinstance(bases, str) else bases:
        beside = path.parent / f"{base.removesuffix('.yaml')}.yaml"
        yield from _layers(beside if beside.is_file() else find(base), (*above, path))
    yield Layer(path.name, tree)


def _parse(items: Sequence[str]) -> dict[str, Any]:
    """Turns `a.b=c` items into a tree; `credit=x` beside `credit.y.z=…` becomes its `method`."""
    tree: dict[str, Any] = {}
    for item in items:
        path, equals, text = item.partition("=")
        if not equals or not all(path.split(".")):
            raise ConfigError(
                f"cannot read the override {item!r}: write key.path=value, for example train.lr=3e-4"
            )
        path = "credit.method" if path == "credit" else path
        put(tree, path, read_yaml(text, f"the override {item!r}"), f"the override {item!r}")
    return tree
