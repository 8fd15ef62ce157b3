"""What the learner needs of a training engine; each engine has a file of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import torch
from torch import nn
from transformers import PreTrainedModel

from agent.ranks import Ranks
from configs.errors import UserError


@dataclass(frozen=True, slots=True)
class OptimOptions:
    """AdamW and its gradient clip; meanings and ranges as in `configs.schema.TrainConfig`."""

    betas: tuple[float, float] = (0.9, 0.999)
    weight_decay: float = 0.01
    grad_clip: float = 1.0


STATE_FILE = "trainer.pt"
"""The last file of a checkpoint to be written: a folder that has it is whole."""


class StateError(ValueError):
    """A saved optimiser state cannot be taken; the message says why and what can."""


class NonFiniteError(UserError, RuntimeError):
    """A loss or a gradient is NaN or infinite; no optimiser step was taken with it."""


class Engine(Protocol):
    """Owns the module being trained, its gradients and its optimiser.

    Attributes:
        module: Called for every forward pass (a `rl.learner.forward.ResponseModel`, perhaps wrapped).
        model: The Hugging Face model in it; for its configuration and `save_pretrained`.
        rank: Of this process, from 0.
        world_size: Processes that share every optimiser step.
        grad_clip: Limit of the global gradient norm.
    """

    module: nn.Module
    model: PreTrainedModel
    rank: int
    world_size: int
    grad_clip: float

    @property
    def device(self) -> torch.device:
        """Where batches go."""

    def backward(self, loss: torch.Tensor, *, last: bool) -> None:
        """Adds the gradient of `loss`; gradients are summed over calls and ranks until `step`.

        Args:
            loss: Scalar.
            last: Whether `step` follows.
        """

    def step(self, lr: float) -> float:
        """Clips, takes one AdamW step with `lr`, clears the gradients.

        Returns:
            Global gradient norm before clipping.

        Raises:
            NonFiniteError: the norm is NaN or infinite; weights and moments are untouched.
        """

    def discard(self) -> None:
        """Throws away the gradients since the last step."""

    def reduce(self, values: Sequence[float], how: Literal["sum", "max"]) -> list[float]:
        """Combines each value over the ranks; every rank gets the result."""

    def channel(self) -> Ranks:
        """Opens another channel between the ranks, one per thread; every rank does so at the same point."""

    def named_weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Full weights under the names of the Hugging Face model, adapters merged; all ranks take part."""

    def adapter_weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        """The adapters' weights, nothing where all weights are trained; all ranks take part."""

    def base_weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        """The weights that adapters were added to, without them; all ranks take part."""

    def load_weights(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Replaces the weights that are trained, names as in `named_weights`; with adapters those of
        `adapter_weights`. Every rank gives the same."""

    def save(self, folder: Path) -> None:
        """Writes the optimiser's state into `folder`; all ranks take part."""

    def load(self, folder: Path) -> None:
        """Reads what `save` wrote; weights are loaded apart, and before.

        Raises:
            StateError: it is another engine's, or of a kind that cannot become this engine's.
        """
