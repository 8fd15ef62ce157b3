"""Low-rank adapters as they are handed to a generator: their names, and a model that computes with them.

Merged into bfloat16 weights an update of adapters is mostly lost: bfloat16 keeps 8 bits of a sum whose second
term is thousands of times smaller than the first. Kept apart, W·x + B·(A·x), it is not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn.functional import linear

from agent.policy import PolicyError

PREFIX = "base_model.model."
"""Of the names in peft's files: `<PREFIX><module>.lora_A.weight` [r, in] and `….lora_B.weight` [out, r]."""

Pair = tuple[torch.Tensor, torch.Tensor]
"""A and B of one module."""


def adapter_pairs(
    weights: Iterable[tuple[str, torch.Tensor]], model: Mapping[str, torch.Tensor]
) -> dict[str, Pair]:
    """The two halves of every adapter by the name of its module.

    Args:
        weights: (name in peft's file, tensor).
        model: State dict of the model that they are for.

    Raises:
        PolicyError: another name, a half without the other, or a module that the model does not have or has
            in another shape.
    """
    halves: tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]] = ({}, {})
    for name, weight in weights:
        module, _, half = name.removeprefix(PREFIX).partition(".lora_")
        if not name.startswith(PREFIX) or half not in ("A.weight", "B.weight"):
            raise PolicyError(
                f"load_adapters: unknown weight {name!r}; expected {PREFIX}<module>.lora_A.weight or B"
            )
        halves[half == "B.weight"][module] = weight
    if alone := halves[0].keys() ^ halves[1].keys():
        raise PolicyError(f"load_adapters: only one of A and B came for {', '.join(sorted(alone))}")
    pairs = {module: (a, halves[1][module]) for module, a in halves[0].items()}
    for module, (a, b) in pairs.items():
        target = model.get(f"{module}.weight")
        if target is None:
            raise PolicyError(f"load_adapters: the policy's model has no module {module!r}")
        if a.shape[0] != b.shape[1] or (b.shape[0], a.shape[1]) != tuple(target.shape):
            raise PolicyError(
                f"load_adapters: {module} is {tuple(target.shape)}, and B·A is {tuple(b.shape)} × "
                f"{tuple(a.shape)}: these are adapters of another model"
            )
    return pairs


def named_halves(pairs: Mapping[str, Pair]) -> Iterator[tuple[str, torch.Tensor]]:
    """The reverse of `adapter_pairs`."""
    for module, pair in pairs.items():
        for half, weight in zip("AB", pair, strict=True):
            yield f"{PREFIX}{module}.lora_{half}.weight", weight


class AdaptedLayers:
    """Adapters beside the linear layers of a model, whose own weights and names stay as they are.

    A layer computes what peft's does in the same type, but for the scaling, which is in B: to the bit where
    that is a power of two.

    Attributes:
        held: A and B by the name of their module.
    """

    def __init__(self, model: nn.Module) -> None:
        """Has no adapters yet.

        Args:
            model: To be adapted in place.
        """
        self._model = model
        self.held: dict[str, Pair] = {}
        self._hooks: list[Any] = []

    def take(self, pairs: Mapping[str, Pair]) -> None:
        """Replaces the adapters of now; they are copied, in the type and on the device of each layer.

        Args:
            pairs: From `adapter_pairs`.
        """
        self.clear()
        for name, pair in pairs.items():
            layer = self._model.get_submodule(name)
            a, b = (half.detach().to(layer.weight, copy=True) for half in pair)
            self.held[name] = (a, b)
            self._hooks.append(layer.register_forward_hook(_adds(a, b)))

    def named(self) -> Iterator[tuple[str, torch.Tensor]]:
        """What it computes with, under the names of peft's files."""
        return named_halves(self.held)

    def clear(self) -> None:
        """Takes all adapters away."""
        for hook in self._hooks:
            hook.remove()
        self._hooks, self.held = [], {}


def _adds(a: torch.Tensor, b: torch.Tensor) -> Any:
    def add(layer: nn.Module, inputs: tuple[torch.Tensor], output: torch.Tensor) -> torch.Tensor:
        return output + linear(linear(inputs[0], a), b)

    return add
