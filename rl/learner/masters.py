"""Float32 master weights: what the optimiser trains where the model's own type is too coarse for its steps.

bfloat16 keeps 8 bits of a weight, so a step of lr 1e-6 is lost on all but the smallest weights when it is
added to them directly. Added to a float32 copy it is kept, and shows in the rounded weight when enough of
them have come together (mixed-precision training: Micikevicius et al. 2018, arXiv 1710.03740, §3.1).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import nn


class Masters:
    """Float32 copies of a model's trained weights of a coarser type; weights that are float32 need none.

    A gradient moves to its master as soon as a backward pass has made it, so gradients of several
    micro-batches are summed in float32, and never more than one is there in the coarser type.

    Attributes:
        trained: What the optimiser trains: the masters, and weights that have none, in the model's order.
    """

    def __init__(self, model: nn.Module) -> None:
        """Copies the weights of now, on their device.

        Args:
            model: Its parameters with `requires_grad` are trained; tied ones count once.
        """
        named = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self._weights = {name: p for name, p in named.items() if torch.finfo(p.dtype).bits < 32}
        self._copies = {name: nn.Parameter(p.detach().float()) for name, p in self._weights.items()}
        self.trained = [self._copies.get(name, p) for name, p in named.items()]
        for name, weight in self._weights.items():
            weight.register_post_accumulate_grad_hook(_moved_to(self._copies[name]))

    @torch.no_grad()
    def take(self, exact: Mapping[nn.Parameter, torch.Tensor]) -> None:
        """Takes new values, after the model's weights were replaced by them.

        Args:
            exact: For every weight that has a master, the value before it was rounded into the weight.
        """
        for name, weight in self._weights.items():
            self._copies[name].copy_(exact[weight])

    @torch.no_grad()
    def give(self) -> None:
        """Rounds the masters into the model's weights, after a step."""
        for name, weight in self._weights.items():
            weight.copy_(self._copies[name])

    def state(self) -> dict[str, torch.Tensor]:
        """The masters by the names of their weights, not copied; empty where none are needed."""
        return {name: copy.detach() for name, copy in self._copies.items()}

    @torch.no_grad()
    def load(self, saved: Mapping[str, torch.Tensor]) -> None:
        """Takes what `state` gave, and rounds it into the model's weights.

        Raises:
            KeyError: a master is missing.
        """
        for name, copy in self._copies.items():
            copy.copy_(saved[name])
        self.give()


def _moved_to(copy: nn.Parameter) -> Callable[[torch.Tensor], None]:
    def move(weight: torch.Tensor) -> None:
        if copy.grad is None:
            copy.grad = weight.grad.float()
        else:
            copy.grad.add_(weight.grad)
        weight.grad = None

    return move
