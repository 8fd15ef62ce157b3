"""The plain PyTorch engine: fused AdamW on float32 weights or masters, whole in every process of a run."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import torch
from torch import nn
from transformers import PreTrainedModel

from agent.ranks import ALONE, Ranks
from rl.learner.engine import NonFiniteError, OptimOptions, StateError
from rl.learner.forward import ResponseModel
from rl.learner.lora import adapter_parameters, adapter_weights, base_weights, has_adapters, merged_weights
from rl.learner.masters import Masters
from rl.learner.processes import TIMEOUT_S, Channel, average, combined, join, waiting

STATE_FILE, MASTERS_FILE = "optimizer.pt", "masters.pt"


class TorchEngine:
    """See `rl.learner.engine.Engine`.

    Weights of type bfloat16, adapters too, keep float32 master weights (`rl.learner.masters`).

    Of several processes each has all weights and the whole optimiser. Gradients are summed once per optimiser
    step, then all take the same step: the weights of all processes are equal to the bit. Nothing is sharded;
    for models that need that there is DeepSpeed.
    """

    def __init__(
        self, model: PreTrainedModel, options: OptimOptions, *, timeout_s: float = TIMEOUT_S
    ) -> None:
        """Takes `model` as it is: trained in place, on its device and in its type.

        Under a launcher's environment it joins the other processes; all must give the same weights.

        Args:
            model: Any causal LM, perhaps with adapters (`rl.learner.lora`).
            options: Of the optimiser.
            timeout_s: Longest one process waits for another.
        """
        self.rank, self.world_size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
        self._timeout_s = timeout_s
        if self.world_size > 1:
            join(timeout_s)
        self.module = ResponseModel(model)
        self.model = model
        self._adapted = has_adapters(model)
        self._masters = Masters(model)
        self._exact = False  # whether the weights came in float32
        self.grad_clip = options.grad_clip
        self._optimizer = torch.optim.AdamW(
            self._masters.trained, lr=0.0, betas=options.betas, weight_decay=options.weight_decay, fused=True
        )

    @property
    def device(self) -> torch.device:
        """See `Engine.device`."""
        return self._masters.trained[0].device

    def backward(self, loss: torch.Tensor, *, last: bool) -> None:
        """See `Engine.backward`."""
        loss.backward()

    def step(self, lr: float) -> float:
        """See `Engine.step`."""
        if self.world_size > 1:
            self._average_gradients()
        norm = float(torch.nn.utils.clip_grad_norm_(self._masters.trained, self.grad_clip))
        if not math.isfinite(norm):
            self.discard()
            raise NonFiniteError(f"gradient norm is {norm}")
        for group in self._optimizer.param_groups:
            group["lr"] = lr
        self._optimizer.step()
        self._masters.give()
        self.discard()
        return norm

    def _average_gradients(self) -> None:
        # Every process has had a batch, so where one has no gradient none has: the weight is not used.
        gradients = [weight.grad for weight in self._masters.trained if weight.grad is not None]
        with waiting("the gradients of the others", self._timeout_s):
            average(gradients)

    def discard(self) -> None:
        """See `Engine.discard`."""
        self._optimizer.zero_grad(set_to_none=True)

    def reduce(self, values: Sequence[float], how: Literal["sum", "max"]) -> list[float]:
        """See `Engine.reduce`."""
        if self.world_size == 1:
            return list(values)
        with waiting("the sums of the others", self._timeout_s):
            return combined(values, how, self.device)

    def channel(self) -> Ranks:
        """See `Engine.channel`."""
        return Channel(self._timeout_s) if self.world_size > 1 else ALONE

    def named_weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        """See `Engine.named_weights`; tied weights come once."""
        return merged_weights(self.model) if self._adapted else unique_weights(self.model)

    def adapter_weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        """See `Engine.adapter_weights`."""
        return adapter_weights(self.model)

    def base_weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        """See `Engine.base_weights`."""
        return base_weights(self.model)

    @torch.no_grad()
    def load_weights(self, weights: Mapping[str, torch.Tensor]) -> None:
        """See `Engine.load_weights`."""
        # Not tensors of the state dict: the masters are found by their parameters.
        named = adapter_parameters(self.model) if self._adapted else self.model.state_dict(keep_vars=True)
        values: dict[torch.Tensor, torch.Tensor] = {}
        for name, target in named.items():
            if target in values:
                continue  # tied to one before it
            if name not in weights:
                raise KeyError(f"no weight named {name!r} among the {len(weights)} given")
            values[target] = weights[name]
            target.copy_(values[target])
        self._masters.take(values)
        self._exact = all(value.dtype == torch.float32 for value in values.values())

    def save(self, folder: Path) -> None:
        """See `Engine.save`; the first process writes, for all have the same."""
        if self.rank:
            return
        torch.save(self._optimizer.state_dict(), folder / STATE_FILE)
        if masters := self._masters.state():
            torch.save(masters, folder / MASTERS_FILE)

    def load(self, folder: Path) -> None:
        """See `Engine.load`."""
        if not (folder / STATE_FILE).is_file():
            raise StateError(f"{folder} holds no {STATE_FILE}: another engine wrote it (train.engine)")
        if self._masters.state():
            if (folder / MASTERS_FILE).is_file():
                self._masters.load(torch.load(folder / MASTERS_FILE, weights_only=True))
            elif not (self._adapted and self._exact):  # adapters were float32 once, and no copy was needed
                raise StateError(
                    f"{folder} holds no {MASTERS_FILE}: it was written before bfloat16 weights had float32 "
                    "copies in this engine, and most of its steps were lost in rounding. Start a new run "
                    f"from its weights (model.path={folder})"
                )
        self._optimizer.load_state_dict(torch.load(folder / STATE_FILE, weights_only=True))


def unique_weights(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """The state dict without second names of tied weights."""
    seen = set()
    for name, tensor in model.state_dict().items():
        if tensor.data_ptr() not in seen:
            seen.add(tensor.data_ptr())
            yield name, tensor
