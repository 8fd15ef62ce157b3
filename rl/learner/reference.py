"""The policy that training started from, which the KL term and some credit methods compare with.

Three ways to have it: a frozen copy; that copy in main memory, on the accelerator only while it scores; and,
where only adapters are trained, the model itself without them, which costs no memory at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Protocol

import torch
from torch import nn
from transformers import PreTrainedModel

from rl.learner.engine import Engine
from rl.learner.forward import ResponseModel
from rl.learner.lora import adapters_off

Place = Callable[[torch.Tensor], torch.Tensor]


class Reference(Protocol):
    """Scores as the starting policy."""

    def scoring(self) -> AbstractContextManager[nn.Module]:
        """Gives, inside, what `rl.learner.forward.measure_rows` takes as its module; nothing trains there."""


class FrozenCopy:
    """A model of its own; pass one that nothing else trains."""

    def __init__(self, model: PreTrainedModel) -> None:
        """Takes `model` as it is, and freezes it."""
        self._module = ResponseModel(model.eval().requires_grad_(False))

    def scoring(self) -> AbstractContextManager[nn.Module]:
        """See `Reference.scoring`."""
        return nullcontext(self._module)


class OffloadedCopy:
    """A frozen copy whose weights lie in main memory and go to the accelerator for as long as it scores.

    What it computes is the frozen copy's to the bit. Every scoring moves all weights there once, and none
    back: those in main memory stay as they are.
    """

    def __init__(self, model: PreTrainedModel, place: Place | None = None) -> None:
        """Moves `model`'s weights to main memory; buffers, which are small, stay where they are.

        Args:
            model: Nothing else may train it.
            place: Gives a weight's copy where it scores; None: on the device that `model` is on.
        """
        device = model.device
        self._place = place or (lambda weight: weight.to(device))
        self._module = ResponseModel(model.eval().requires_grad_(False))
        self._kept = [(parameter, parameter.detach().to("cpu")) for parameter in model.parameters()]
        self._rest()

    @contextmanager
    def scoring(self) -> Iterator[nn.Module]:
        """See `Reference.scoring`."""
        try:
            for parameter, weight in self._kept:
                parameter.data = self._place(weight)
            yield self._module
        finally:
            self._rest()

    def _rest(self) -> None:
        for parameter, weight in self._kept:
            parameter.data = weight


class WithoutAdapters:
    """The trained model itself with its adapters turned off: its frozen weights are the starting policy's."""

    def __init__(self, engine: Engine) -> None:
        """Takes the engine that trains the adapters: where it shards weights, it gathers them here too."""
        self._engine = engine

    @contextmanager
    def scoring(self) -> Iterator[nn.Module]:
        """See `Reference.scoring`."""
        with adapters_off(self._engine.model):
            yield self._engine.module
