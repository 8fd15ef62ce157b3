"""The training engine of one process: plain PyTorch with fused AdamW, on float32 weights or masters."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import torch
from torch import nn
from transformers import PreTrainedModel

from agent.ranks import Alone
from rl.learner.engine import NonFiniteError, OptimOptions, StateError
from rl.learner.forward import ResponseModel
from rl.learner.lora import adapter_parameters, adapter_weights, has_adapters, merged_weights
from rl.learner.masters import Masters

STATE_FILE, MASTERS_FILE = "optimizer.pt", "masters.pt"


class TorchEngine:
    """See `rl.learner.engine.Engine`.

    Weights of type bfloat16 keep float32 master weights (`rl.learner.masters`); adapters (`rl.learner.lora`)
    are float32 and need none.
    """

    rank = 0
    world_size = 1

    def __init__(self, model: PreTrainedModel, options: OptimOptions) -> None:
        """Takes `model` as it is: trained in place, on its device and in its type.

        Args:
            model: Any causal LM, perhaps with adapters (`rl.learner.lora`).
            options: Of the optimiser.

        Raises:
            ValueError: a launcher started several processes: each would train weights of its own.
        """
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise ValueError(
                f"train.engine=torch is one process, and there are {os.environ['WORLD_SIZE']}: they would "
                "train apart. Set train.engine=deepspeed"
            )
        self.module = ResponseModel(model)
        self.model = model
        self._adapted = has_adapters(model)
        self._masters = Masters(model)
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

    def discard(self) -> None:
        """See `Engine.discard`."""
        self._optimizer.zero_grad(set_to_none=True)

    def reduce(self, values: Sequence[float], how: Literal["sum", "max"]) -> list[float]:
        """See `Engine.reduce`."""
        return list(values)

    def channel(self) -> Alone:
        """See `Engine.channel`."""
        return Alone()

    def named_weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        """See `Engine.named_weights`; tied weights come once."""
        return merged_weights(self.model) if self._adapted else unique_weights(self.model)

    def adapter_weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        """See `Engine.adapter_weights`."""
        return adapter_weights(self.model)

    @torch.no_grad()
    def load_weights(self, weights: Mapping[str, torch.Tensor]) -> None:
        """See `Engine.load_weights`."""
        targets = adapter_parameters(self.model).items() if self._adapted else unique_weights(self.model)
        for name, target in targets:
            if name not in weights:
                raise KeyError(f"no weight named {name!r} among the {len(weights)} given")
            target.copy_(weights[name])
        self._masters.take()

    def save(self, folder: Path) -> None:
        """See `Engine.save`."""
        torch.save(self._optimizer.state_dict(), folder / STATE_FILE)
        if masters := self._masters.state():
            torch.save(masters, folder / MASTERS_FILE)

    def load(self, folder: Path) -> None:
        """See `Engine.load`."""
        if not (folder / STATE_FILE).is_file():
            raise StateError(f"{folder} holds no {STATE_FILE}: another engine wrote it (train.engine)")
        if self._masters.state():
            if not (folder / MASTERS_FILE).is_file():
                raise StateError(
                    f"{folder} holds no {MASTERS_FILE}: it was written before bfloat16 weights had float32 "
                    "copies in this engine, and most of its steps were lost in rounding. Start a new run "
                    f"from its weights (model.path={folder})"
                )
            self._masters.load(torch.load(folder / MASTERS_FILE, weights_only=True))
        self._optimizer.load_state_dict(torch.load(folder / STATE_FILE, weights_only=True))


def unique_weights(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """The state dict without second names of tied weights."""
    seen = set()
    for name, tensor in model.state_dict().items():
        if tensor.data_ptr() not in seen:
            seen.add(tensor.data_ptr())
            yield name, tensor
