"""The DeepSpeed engine: ZeRO over any number of processes, on GPU or CPU.

The only file that imports deepspeed. Processes join in `rl.learner.processes`: under a launcher they are that
launcher's; started plainly it is a world of one, without ports or MPI.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import nn
from transformers import PreTrainedModel

from rl.learner.engine import NonFiniteError, OptimOptions
from rl.learner.forward import ResponseModel
from rl.learner.lora import adapter_parameters, adapter_weights, base_weights, has_adapters, merged_weights
from rl.learner.processes import TIMEOUT_S, Channel, Waits, combined, join, limit_waiting, waiting
from rl.learner.zero_state import ZeroState

if not torch.cuda.is_available():
    os.environ.setdefault("DS_ACCELERATOR", "cpu")  # read by the import; without it DeepSpeed searches aloud

import deepspeed  # noqa: E402
from deepspeed.checkpoint import ds_to_universal  # noqa: E402

# DeepSpeed calls what this PyTorch has another name for, and would be warned about it at every step.
warnings.filterwarnings("ignore", message=".*_scatter_tensor", category=FutureWarning)
warnings.filterwarnings("ignore", message=".*_gather_into_tensor", category=FutureWarning)

WEIGHTS = "the others' parts of the weights"

__all__ = ["DeepSpeedEngine", "join"]


class DeepSpeedEngine:
    """See `rl.learner.engine.Engine`.

    ZeRO-0 … 3 give the gradients of `TorchEngine` up to the order of sums. Weights of type bfloat16, adapters
    too, keep float32 master weights. A learner may sum any number of micro-batches into a step, so
    DeepSpeed's own accumulation is set to 1 and the boundary is given by hand.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        options: OptimOptions,
        *,
        zero_stage: int = 1,
        offload: bool = False,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """Takes `model` as it is; it must be on this rank's device.

        Args:
            model: Any causal LM, float32 or bfloat16, perhaps with adapters.
            options: Of the optimiser.
            zero_stage: 0 (nothing is sharded) … 3 (optimiser, gradients and weights are).
            offload: Keep the optimiser's state in main memory and take its steps on the CPU, with PyTorch's
                fused AdamW: DeepSpeed's own would have to be compiled. Needs a stage above 0.
            timeout_s: Longest one process waits for another.

        Raises:
            ValueError: offload without a stage that has a state to move.
        """
        if offload and zero_stage == 0:
            raise ValueError("train.offload needs train.zero_stage 1, 2 or 3: at 0 nothing can be moved")
        # On CPU, DeepSpeed would build a shared-memory all-reduce with g++ at start (minutes, needs a
        # compiler); gloo does the same work without it.
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
        join(timeout_s)
        self.model = model
        self.grad_clip = options.grad_clip
        self._zero_stage, self._timeout_s = zero_stage, timeout_s
        self._adapted = has_adapters(model)
        parameters = [p for p in model.parameters() if p.requires_grad]
        optimizer = torch.optim.AdamW(
            parameters, lr=0.0, betas=options.betas, weight_decay=options.weight_decay, fused=True
        )
        self._master = parameters[0].dtype == torch.bfloat16
        with waiting("the others to start DeepSpeed", timeout_s):
            self._engine, *_ = deepspeed.initialize(
                model=ResponseModel(model),
                optimizer=optimizer,
                config=_config(options, zero_stage, bf16=self._master, offload=offload),
            )
        limit_waiting(timeout_s)
        self.module = Waits(self._engine, WEIGHTS, timeout_s) if zero_stage == 3 else self._engine
        self.rank, self.world_size = dist.get_rank(), dist.get_world_size()
        self._state = ZeroState(
            self._engine,
            zero_stage,
            self.channel(),
            adapted=self._adapted,
            convert=ds_to_universal.main,
        )

    @property
    def device(self) -> torch.device:
        """See `Engine.device`."""
        return self._engine.device

    def backward(self, loss: torch.Tensor, *, last: bool) -> None:
        """See `Engine.backward`."""
        self._engine.set_gradient_accumulation_boundary(last)
        with waiting("the gradients of the others", self._timeout_s):
            self._engine.backward(loss)

    def step(self, lr: float) -> float:
        """See `Engine.step`."""
        for group in self._engine.optimizer.param_groups:
            group["lr"] = lr
        norm = self._unsharded_norm()
        with waiting("the optimiser steps of the others", self._timeout_s):
            self._engine.step()
        norm = float(self._engine.get_global_grad_norm()) if norm is None else norm
        if not math.isfinite(norm) or norm < 0:  # DeepSpeed skipped the step
            raise NonFiniteError(f"gradient norm is {norm}")
        return norm

    def _unsharded_norm(self) -> float | None:
        """The gradient norm where DeepSpeed neither reports nor checks it: float32 without ZeRO."""
        if self._zero_stage > 0 or self._master:
            return None
        grads = [p.grad for p in self.model.parameters() if p.grad is not None]
        norm = float(torch.nn.utils.get_total_norm(grads))
        if not math.isfinite(norm):
            self.discard()
            raise NonFiniteError(f"gradient norm is {norm}")
        return norm

    def discard(self) -> None:
        """See `Engine.discard`."""
        self._engine.optimizer.zero_grad(set_to_none=True)

    def reduce(self, values: Sequence[float], how: Literal["sum", "max"]) -> list[float]:
        """See `Engine.reduce`."""
        with waiting("the sums of the others", self._timeout_s):
            return combined(values, how, self.device)

    def channel(self) -> Channel:
        """See `Engine.channel`."""
        return Channel(self._timeout_s)

    def named_weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        """See `Engine.named_weights`; under ZeRO-3 every rank gathers one weight at a time."""
        if self._adapted:
            yield from merged_weights(self.model, self._gathered if self._zero_stage == 3 else None)
            return
        for name, parameter in self.model.named_parameters():
            with self._gathered([parameter]):
                weight = parameter.detach().clone() if self._zero_stage == 3 else parameter.detach()
            yield name, weight

    def adapter_weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        """See `Engine.adapter_weights`."""
        return adapter_weights(self.model, self._gathered)

    def base_weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        """See `Engine.base_weights`."""
        return base_weights(self.model, self._gathered if self._zero_stage == 3 else None)

    @torch.no_grad()
    def load_weights(self, weights: Mapping[str, torch.Tensor]) -> None:
        """See `Engine.load_weights`."""
        adapters = adapter_parameters(self.model)
        for name, parameter in adapters.items() if adapters else self.model.named_parameters():
            if name not in weights:
                raise KeyError(f"no weight named {name!r} among the {len(weights)} given")
            with self._gathered([parameter], modifier_rank=0):
                parameter.copy_(weights[name])
        if self._zero_stage > 0 or self._master:
            self._engine.optimizer.refresh_fp32_params()

    def save(self, folder: Path) -> None:
        """See `Engine.save`; every rank writes its shard."""
        with waiting("the others to save", self._timeout_s):
            self._state.save(folder)

    def load(self, folder: Path) -> None:
        """See `Engine.load`; the number of ranks may be another one than when it was saved."""
        with waiting("the others to load", self._timeout_s):
            self._state.load(folder)

    @contextmanager
    def _gathered(
        self, parameters: Sequence[nn.Parameter], modifier_rank: int | None = None
    ) -> Iterator[None]:
        gathered = deepspeed.zero.GatheredParameters(
            list(parameters), modifier_rank=modifier_rank, enabled=self._zero_stage == 3
        )
        with waiting(WEIGHTS, self._timeout_s), gathered:
            yield


def _config(options: OptimOptions, zero_stage: int, *, bf16: bool, offload: bool) -> dict[str, Any]:
    zero: dict[str, Any] = {"stage": zero_stage}
    if offload:
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": torch.cuda.is_available()}
    return {
        "train_micro_batch_size_per_gpu": 1,  # required, and not used: batches are counted in tokens
        "gradient_accumulation_steps": 1,
        "gradient_clipping": options.grad_clip,
        "bf16": {"enabled": bf16},
        "zero_optimization": zero,
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
    }
