"""The processes of a run: they join once, and talk over channels of their own.

Under a launcher (`commands.launch`, torchrun, deepspeed) they are that launcher's, on any number of nodes: it
sets RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. Started plainly, a process is a world of one,
without ports.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Literal, TypeVar

import torch
import torch.distributed as dist
from torch import nn

from agent.ranks import RanksError

TIMEOUT_S = 1800.0

T = TypeVar("T")


def join(timeout_s: float = TIMEOUT_S) -> None:
    """Joins the run's processes; a second call does nothing. Call it before anything is put on a device.

    On accelerators LOCAL_RANK picks this process's, and NCCL carries the tensors; without, gloo does.

    Args:
        timeout_s: Longest one process waits for another, here and in everything that follows.

    Raises:
        RanksError: not all came in time.
    """
    os.environ.setdefault("LOCAL_RANK", "0")
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    if dist.is_initialized():
        return
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    timeout = timedelta(seconds=timeout_s)
    if "RANK" not in os.environ:
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1, timeout=timeout)
        return
    with waiting(f"the {os.environ.get('WORLD_SIZE', '?')} processes to join", timeout_s):
        dist.init_process_group(backend, timeout=timeout)


def limit_waiting(timeout_s: float) -> None:
    """Gives every group there is the time-out; libraries make groups with defaults of their own."""
    for group in list(dist.distributed_c10d._world.pg_map):
        dist.distributed_c10d._set_pg_timeout(timedelta(seconds=timeout_s), group)


class Waits(nn.Module):
    """A module whose passes wait for other ranks, as those of sharded weights do."""

    def __init__(self, module: nn.Module, what: str, timeout_s: float) -> None:
        """Names what is waited for in the error of a pass that nobody answers; see `waiting`."""
        super().__init__()
        self.module = module
        self._what, self._timeout_s = what, timeout_s

    def forward(self, *arguments: object) -> object:
        """Calls the module."""
        with waiting(self._what, self._timeout_s):
            return self.module(*arguments)


class Channel:
    """See `agent.ranks.Ranks`: objects, over gloo, beside whatever the engine's groups carry.

    A channel is one thread's: two threads on one would mix up their messages.
    """

    def __init__(self, timeout_s: float) -> None:
        """Opens a channel; every rank must do so at the same point.

        Args:
            timeout_s: Longest to wait for another rank in one call.
        """
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self._timeout_s = timeout_s
        with waiting("a channel between the ranks", timeout_s):
            self._group = dist.new_group(backend="gloo", timeout=timedelta(seconds=timeout_s))

    def gather(self, value: T) -> list[T]:
        """See `Ranks.gather`."""
        values: list[T | None] = [None] * self.size
        with waiting("what the other ranks have to say", self._timeout_s):
            dist.all_gather_object(values, value, group=self._group)
        return values

    def share(self, value: T) -> T:
        """See `Ranks.share`."""
        box = [value]
        with waiting("what rank 0 decides", self._timeout_s):
            dist.broadcast_object_list(box, src=0, group=self._group)
        return box[0]


def combined(values: Sequence[float], how: Literal["sum", "max"], device: torch.device) -> list[float]:
    """Combines each value over the ranks of the default group; every rank gets the result.

    Args:
        values: As many on every rank.
        how: Added up, or the largest.
        device: Where the group's tensors must be.
    """
    tensor = torch.tensor(list(values), dtype=torch.float64, device=device)
    dist.all_reduce(tensor, op=dist.ReduceOp.SUM if how == "sum" else dist.ReduceOp.MAX)
    return tensor.tolist()


def average(tensors: Sequence[torch.Tensor]) -> None:
    """Replaces each tensor by its mean over the ranks of the default group, the same bits on every rank.

    They travel as one flat message per type: a message per tensor would wait for the others each time.

    Args:
        tensors: Of the same shapes and types on every rank, in the same order.
    """
    for kind in sorted({tensor.dtype for tensor in tensors}, key=str):
        some = [tensor for tensor in tensors if tensor.dtype == kind]
        flat = torch.cat([tensor.reshape(-1) for tensor in some])
        dist.all_reduce(flat)
        flat /= dist.get_world_size()
        for tensor, mean in zip(some, flat.split([tensor.numel() for tensor in some]), strict=True):
            tensor.copy_(mean.view_as(tensor))


@contextmanager
def waiting(what: str, timeout_s: float) -> Iterator[None]:
    """Turns a failure of communication into one clear error; every other error passes.

    Raises:
        RanksError: a rank is gone, or did not come within the time-out.
    """
    try:
        yield
    except RuntimeError as error:
        text = str(error).strip().partition("\n")[0]
        if not (isinstance(error, dist.DistError) or "gloo" in text or "NCCL" in text):
            raise
        raise RanksError(
            f"rank {os.environ.get('RANK', '0')} waited for {what}, but another process died, or did not "
            f"come within {timeout_s:g} s (train.timeout_s): {text}"
        ) from error
