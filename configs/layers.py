"""Layers that an experiment asks for: its protocol, and the settings its method was published with.

Both lie just above the layer that asks for them: they override its own values, and files based on it and the
command line override them. (What the command line asks for lies just below its other items.) Where one layer
asks for both, the method's settings override the protocol, being more specific. All layers together decide
which method and environment count, so another method on the command line replaces all published settings of
the first one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from configs.methods import Method, known_stages, mapping, methods, read_method
from configs.protocol import read_protocol
from configs.schema import Config
from configs.text import ConfigError, suggest

COMMAND_LINE = "command line"
_UNSAID = object()


@dataclass(frozen=True)
class Layer:
    """Options from one place.

    Attributes:
        label: The place, for provenance.
        tree: The options, as in an experiment file.
        shared: Its credit options apply to any method that has the stage; a method without it ignores them.
    """

    label: str
    tree: Mapping[str, Any]
    shared: bool = False


def resolve(layers: Sequence[Layer]) -> tuple[list[Layer], tuple[str, ...]]:
    """Adds the layers that the given layers ask for.

    Returns:
        All layers, lowest first, and one line for each request that had no effect.

    Raises:
        ConfigError: An unknown protocol or method.
    """
    method = _method(layers)
    found, notes = _with_published(_with_protocol(list(layers)))
    return found, (*(() if method is None else method.hints), *notes)


def credit_layers(method: str, config: Config) -> list[Layer]:
    """Returns what a run's protocol and its `credit.settings` say of another method's stages, for replays."""
    layers = [] if config.protocol is None else _of_protocol(config.protocol, config.env.name, "protocol")
    published = read_method(method).published.get(config.env.name)
    if config.credit.settings == "published" and published is not None:
        layers.append(Layer(published.label, published.tree, shared=True))
    return [Layer(one.label, {"credit": one.tree.get("credit", {})}, shared=True) for one in layers]


def _with_protocol(layers: list[Layer]) -> list[Layer]:
    place, name = _last(layers, "protocol")
    if name is None:
        return layers
    made = _of_protocol(str(name), str(final_value(layers, "env", "name")), layers[place].label)
    _check_stages(made, _method(layers))
    at = _above(layers, place)
    return layers[:at] + made + layers[at:]


def _of_protocol(name: str, environment: str, label: str) -> list[Layer]:
    protocol = read_protocol(name, label)
    return [Layer(protocol.label, tree, shared=True) for tree in protocol.trees(environment)]


def _check_stages(layers: Sequence[Layer], method: Method | None) -> None:
    """Refuses a stage that no method has: it would be ignored silently, as a stage of another method is."""
    known = known_stages() | (method.stages.keys() if method else set())
    for layer in layers:
        for stage in mapping(layer.tree.get("credit", {}), "credit", layer.label):
            if stage not in known and stage != "settings":
                hint = suggest(stage, known, prefix="credit.")
                raise ConfigError(f"unknown option `credit.{stage}` ({layer.label}): no method has it{hint}")


def _with_published(layers: list[Layer]) -> tuple[list[Layer], tuple[str, ...]]:
    place, settings = _last(layers, "credit", "settings")
    if settings != "published":
        return layers, ()
    environment = str(final_value(layers, "env", "name"))
    method = _method(layers)
    published = None if method is None else method.published.get(environment)
    if published is None:
        what = "a method of your own" if method is None else method.file
        return layers, (
            f"credit.settings=published: {what} has no published settings for {environment}: its "
            "plain ones are used.",
        )
    at = _above(layers, place)
    layer = Layer(published.label, published.tree, shared=True)
    return layers[:at] + [layer] + layers[at:], ()


def _method(layers: Sequence[Layer]) -> Method | None:
    """The method that all layers together choose; None if the stages are listed one by one."""
    chosen: tuple[str, str] | None = (Config().credit.name, "default")
    for layer in layers:
        credit = layer.tree.get("credit")
        if isinstance(credit, str):
            chosen = credit, layer.label
        elif isinstance(credit, Mapping):
            if "stages" in credit:  # of the method of that name, as a run's config.json has them
                chosen = (credit["name"], layer.label) if credit.get("name") in methods() else None
            if "method" in credit:
                chosen = str(credit["method"]), layer.label
    return None if chosen is None else read_method(*chosen)


def final_value(layers: Sequence[Layer], *path: str) -> Any:
    """An option's value after all layers; its default if no layer sets it."""
    place, value = _last(layers, *path)
    if place >= 0:
        return value
    node: Any = Config()
    for key in path:
        node = getattr(node, key)
    return node


def _last(layers: Sequence[Layer], *path: str) -> tuple[int, Any]:
    """The highest layer that sets an option, and its value there; (-1, None) if none does."""
    for place in range(len(layers) - 1, -1, -1):
        node: Any = layers[place].tree
        for key in path:
            node = node.get(key, _UNSAID) if isinstance(node, Mapping) else _UNSAID
        if node is not _UNSAID:
            return place, node
    return -1, None


def _above(layers: Sequence[Layer], place: int) -> int:
    """Where the layer goes that `place` asks for: above it, and above a protocol that it has brought."""
    if layers[place].label == COMMAND_LINE:
        return place
    return next((n for n in range(place + 1, len(layers)) if not layers[n].shared), len(layers))
