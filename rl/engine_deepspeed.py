"""The DeepSpeed engine: ZeRO over any number of processes, on GPU or CPU.

The only file that imports deepspeed and torch.distributed. Under a launcher (torchrun, deepspeed) it joins
that launcher's processes; started plainly it is a world of one, without ports or MPI.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
import torch.distributed as dist
from transformers import PreTrainedModel

from rl.engine import NonFiniteError, OptimOptions
from rl.forward import ResponseModel

if not torch.cuda.is_available():
    os.environ.setdefault("DS_ACCELERATOR", "cpu")  # read by the import; without it DeepSpeed searches aloud

import deepspeed  # noqa: E402

FOLDER, TAG = "deepspeed", "state"


class DeepSpeedEngine:
    """See `rl.engine.Engine`.

    ZeRO-0 … 3 give the gradients of `TorchEngine` up to the order of sums. Weights of type bfloat16 keep
    float32 master weights. A learner may sum any number of micro-batches into a step, so DeepSpeed's own
    accumulation is set to 1 and the boundary is given by hand.
    """

    def __init__(self, model: PreTrainedModel, options: OptimOptions, *, zero_stage: int = 1) -> None:
        """Takes `model` as it is; it must be on this rank's device.

        Args:
            model: Any causal LM, float32 or bfloat16.
            options: Of the optimiser.
            zero_stage: 0 (nothing is sharded) … 3 (optimiser, gradients and weights are).
        """
        _join_processes()
        self.model = model
        self._zero_stage = zero_stage
        parameters = [p for p in model.parameters() if p.requires_grad]
        optimizer = torch.optim.AdamW(
            parameters, lr=0.0, betas=options.betas, weight_decay=options.weight_decay, fused=True
        )
        self._engine, *_ = deepspeed.initialize(
            model=ResponseModel(model), optimizer=optimizer, config=_config(model, options, zero_stage)
        )
        self.module = self._engine
        self.rank, self.world_size = dist.get_rank(), dist.get_world_size()

    @property
    def device(self) -> torch.device:
        """See `Engine.device`."""
        return self._engine.device

    def backward(self, loss: torch.Tensor, *, last: bool) -> None:
        """See `Engine.backward`."""
        self._engine.set_gradient_accumulation_boundary(last)
        self._engine.backward(loss)

    def step(self, lr: float) -> float:
        """See `Engine.step`."""
        for group in self._engine.optimizer.param_groups:
            group["lr"] = lr
        norm = self._unsharded_norm()
        self._engine.step()
        norm = float(self._engine.get_global_grad_norm()) if norm is None else norm
        if not math.isfinite(norm) or norm < 0:  # DeepSpeed skipped the step
            raise NonFiniteError(f"gradient norm is {norm}")
        return norm

    def _unsharded_norm(self) -> float | None:
        """The gradient norm where DeepSpeed neither reports nor checks it: float32 without ZeRO."""
        if self._zero_stage > 0 or self.model.dtype != torch.float32:
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
        tensor = torch.tensor(list(values), dtype=torch.float64, device=self.device)
        dist.all_reduce(tensor, op=dist.ReduceOp.SUM if how == "sum" else dist.ReduceOp.MAX)
        return tensor.tolist()

    def named_weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        """See `Engine.named_weights`; under ZeRO-3 every rank gathers one weight at a time."""
        for name, parameter in self.model.named_parameters():
            with self._gathered(parameter):
                yield name, parameter.detach().clone() if self._zero_stage == 3 else parameter.detach()

    @torch.no_grad()
    def load_weights(self, weights: Mapping[str, torch.Tensor]) -> None:
        """See `Engine.load_weights`."""
        for name, parameter in self.model.named_parameters():
            if name not in weights:
                raise KeyError(f"no weight named {name!r} among the {len(weights)} given")
            with self._gathered(parameter, modifier_rank=0):
                parameter.copy_(weights[name])
        if self._zero_stage > 0:
            self._engine.optimizer.refresh_fp32_params()

    def save(self, folder: Path) -> None:
        """See `Engine.save`; sharded, and readable only by the same number of processes."""
        self._engine.save_checkpoint(str(folder / FOLDER), tag=TAG, save_latest=False)

    def load(self, folder: Path) -> None:
        """See `Engine.load`."""
        if not (folder / FOLDER / TAG).is_dir():
            raise FileNotFoundError(f"{folder} holds no DeepSpeed state ({FOLDER}/): another engine wrote it")
        self._engine.load_checkpoint(str(folder / FOLDER), tag=TAG)

    def _gathered(self, parameter: torch.nn.Parameter, modifier_rank: int | None = None) -> Any:
        return deepspeed.zero.GatheredParameters(
            [parameter], modifier_rank=modifier_rank, enabled=self._zero_stage == 3
        )


def _config(model: PreTrainedModel, options: OptimOptions, zero_stage: int) -> dict[str, Any]:
    return {
        "train_micro_batch_size_per_gpu": 1,  # required, and not used: batches are counted in tokens
        "gradient_accumulation_steps": 1,
        "gradient_clipping": options.grad_clip,
        "bf16": {"enabled": model.dtype == torch.bfloat16},
        "zero_optimization": {"stage": zero_stage},
        "zero_allow_untested_optimizer": True,
    }


def _join_processes() -> None:
    """Initialises torch.distributed if nobody has, and keeps DeepSpeed from compiling an extension.

    On CPU, DeepSpeed builds a shared-memory all-reduce with g++ at start (minutes, needs a compiler); gloo
    does the same work without it.
    """
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    os.environ.setdefault("LOCAL_RANK", "0")
    if dist.is_initialized():
        return
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    if "RANK" in os.environ:
        dist.init_process_group(backend)
    else:
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
