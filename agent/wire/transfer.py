"""Weights on their way from a learner to policy servers: buckets, checksums, and process groups.

A transfer never holds a second copy of a model: tensors travel in *buckets* of limited size, one after the
other, larger ones in pieces. In a process group they are broadcast one by one, from the sender's memory to
the receivers', and their names and shapes travel through the group's store.

Groups are made of stores and back ends of their own, so that a run's default group, or the lack of one, is
none of their business.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import Any

import torch
import xxhash
from safetensors import SafetensorError
from safetensors.torch import load, save

from agent.policy import PolicyError

BUCKET_BYTES = 128 * 2**20
"""Most bytes of tensors in a bucket."""

Named = tuple[str, torch.Tensor]
Bucket = list[tuple[str, torch.Tensor, int, list[int]]]
"""Pieces: (name, flat piece, index of its first element, shape of the whole)."""


class TransferError(PolicyError):
    """Weights did not arrive; nothing may be sampled until a whole transfer has."""


class Checksums:
    """A checksum of each tensor's name, type, shape and bytes: XXH3 of 128 bits.

    It is made for accidents, not against forgers, and as fast as memory (20 GB/s on one core).
    """

    def __init__(self) -> None:
        self.digests: dict[str, str] = {}

    def add(self, name: str, tensor: torch.Tensor) -> None:
        """Takes a tensor; one on an accelerator is copied for it."""
        digest = xxhash.xxh3_128(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
        self.digests[name] = digest.hexdigest()

    def differences(self, others: dict[str, str]) -> list[str]:
        """Names whose checksum is missing or another one among `others`."""
        names = self.digests.keys() | others.keys()
        return sorted(name for name in names if self.digests.get(name) != others.get(name))


def buckets(weights: Iterable[Named], limit: int) -> Iterator[Bucket]:
    """Cuts weights into buckets of at most `limit` bytes, on the CPU; an element is never cut."""
    bucket: Bucket = []
    room = limit
    for name, tensor in weights:
        shape, flat = list(tensor.shape), tensor.detach().reshape(-1)
        first = 0
        while True:
            count = min(flat.numel() - first, room // flat.element_size())
            if not count and flat.numel():  # no room for a single element
                if not bucket:
                    raise TransferError(f"a bucket of {limit} bytes does not hold one element of {name}")
            else:
                bucket.append((name, flat[first : first + count].cpu(), first, shape))
                first, room = first + count, room - count * flat.element_size()
                if first == flat.numel():
                    break
            yield bucket
            bucket, room = [], limit
    if bucket:
        yield bucket


def pack(bucket: Bucket) -> bytes:
    """Writes a bucket as safetensors; its metadata say of each piece where it belongs."""
    places = {name: [first, shape] for name, _, first, shape in bucket}
    return save(
        {name: piece.contiguous() for name, piece, _, _ in bucket}, metadata={"places": json.dumps(places)}
    )


def unpack(data: bytes) -> Bucket:
    """Reads what `pack` wrote.

    Raises:
        TransferError: It is no such thing.
    """
    try:
        tensors = load(data)
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        places = json.loads(header["__metadata__"]["places"])
        # Their order is the sender's; safetensors has its own.
        bucket = [(name, tensors.pop(name), first, shape) for name, (first, shape) in places.items()]
        if tensors:
            raise ValueError(f"no place for {', '.join(tensors)}")
        for _, piece, first, shape in bucket:
            numbers = [first, *shape]
            if piece.dim() != 1 or not all(type(n) is int and 0 <= n < 2**48 for n in numbers):
                raise ValueError(f"no place for {list(piece.shape)}: {numbers}")
    except (SafetensorError, ValueError, KeyError, TypeError, AttributeError) as error:
        reason = str(error).partition("\n")[0][:200]
        raise TransferError(f"this is no bucket of weights: {type(error).__name__}: {reason}") from error
    return bucket


class Assembler:
    """Makes whole tensors of pieces again; at most one is in the making."""

    def __init__(self) -> None:
        self._name = ""
        self._whole = torch.empty(0)
        self._filled = 0

    def take(self, bucket: Bucket) -> Iterator[Named]:
        """Yields the tensors that a bucket completes.

        Raises:
            TransferError: A piece is not the next one of its tensor.
        """
        for name, piece, first, shape in bucket:
            total = torch.Size(shape).numel()
            if not first and piece.numel() == total:
                self._expect(name, 0)
                yield name, piece.reshape(shape)
                continue
            if not first:
                self._expect(name, 0)
                self._name, self._whole, self._filled = name, torch.empty(total, dtype=piece.dtype), 0
            self._expect(name, first)
            if first + piece.numel() > total or piece.dtype != self._whole.dtype:
                raise TransferError(f"a piece of {name} does not fit: {piece.numel()} elements at {first}")
            self._whole[first : first + piece.numel()] = piece
            self._filled += piece.numel()
            if self._filled == total:
                whole, self._name, self._whole, self._filled = self._whole, "", torch.empty(0), 0
                yield name, whole.reshape(shape)

    def finish(self) -> None:
        """Raises a TransferError if a tensor is not complete."""
        self._expect("", 0)

    def _expect(self, name: str, first: int) -> None:
        """Checks that what comes next is what is missing."""
        if (self._name or first) and (name, first) != (self._name, self._filled):
            raise TransferError(
                f"got {name or 'the end'} at {first} where {self._name or 'a new tensor'} at {self._filled} "
                "was to follow: a bucket is missing"
            )


class Group:
    """One sender (rank 0) and its receivers, who meet at a store that listens on the sender's address.

    Make it with `lead` or `join`; `close` it in any case.
    """

    def __init__(self, store: Any, rank: int, size: int, timeout: float) -> None:
        self._store, self.rank, self.size = store, rank, size
        self._timeout = timedelta(seconds=timeout)
        self._until = time.monotonic() + timeout
        self._members: Any = None
        self.port: int = store.port
        self._sent = 0
        self._device = torch.device("cpu")

    @classmethod
    def lead(cls, host: str, size: int, timeout: float) -> Group:
        """Opens the store at a free port of `host`, an address of this machine."""
        from torch.distributed import TCPStore

        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.socket(family) as listener:  # bound to this address only, where torch would take all
            listener.bind((host, 0))
            listener.listen()
            port = listener.getsockname()[1]
            store = TCPStore(
                host,
                port,
                is_master=True,
                wait_for_workers=False,
                timeout=timedelta(seconds=timeout),
                master_listen_fd=listener.detach(),
            )
        return cls(store, 0, size, timeout)

    @classmethod
    def join(cls, host: str, port: int, rank: int, size: int, timeout: float) -> Group:
        """Reaches the sender's store."""
        from torch.distributed import TCPStore

        store = TCPStore(host, port, is_master=False, timeout=timedelta(seconds=timeout))
        return cls(store, rank, size, timeout)

    def meet(self, backend: str, host: str, device: torch.device) -> None:
        """Waits for all members; all have to call it.

        Args:
            backend: `gloo` or `nccl`.
            host: The sender's address: if it is this machine's own, gloo stays there.
            device: Where this member's tensors are.
        """
        import torch.distributed as dist

        self._device = device
        if backend == "nccl":
            torch.cuda.set_device(device)
            options = dist.ProcessGroupNCCL.Options()
            options._timeout = self._timeout
            self._members = dist.ProcessGroupNCCL(self._store, self.rank, self.size, options)
            return
        options = dist.ProcessGroupGloo._Options()
        options._timeout = self._timeout
        near = host in ("::1", "localhost") or host.startswith("127.")
        make = dist.ProcessGroupGloo.create_device
        options._devices = [make(hostname=host) if near else dist.ProcessGroupGloo.create_default_device()]
        self._members = dist.ProcessGroupGloo(self._store, self.rank, self.size, options)

    def send(self, name: str, tensor: torch.Tensor) -> None:
        """Sends a tensor to all; it is read where it is, if that is the group's device."""
        tensor = tensor.detach().to(self._device).contiguous()
        self._say([name, str(tensor.dtype).removeprefix("torch."), list(tensor.shape)])
        self._broadcast(tensor)

    def end(self) -> None:
        """Says that all has been sent."""
        self._say(None)

    def _say(self, header: list[Any] | None) -> None:
        self._store.set(f"tensor {self._sent}", json.dumps(header))
        self._sent += 1

    def receive(self, check: Callable[[], None]) -> Iterator[Named]:
        """Yields what is sent; `check` is called now and then while waiting, and may raise."""
        for number in range(2**31):
            key = f"tensor {number}"
            while not self._store.check([key]):
                check()
                time.sleep(0.0005)
            header = json.loads(self._store.get(key))
            if header is None:
                return
            name, dtype, shape = header
            tensor = torch.empty(shape, dtype=getattr(torch, dtype), device=self._device)
            self._broadcast(tensor)
            yield name, tensor

    def _broadcast(self, tensor: torch.Tensor) -> None:
        import torch.distributed as dist

        options = dist.BroadcastOptions()
        options.rootRank, options.rootTensor, options.timeout = 0, 0, self._timeout
        work = self._members.broadcast([tensor], options)
        if self._device.type == "cpu":
            work.wait(self._timeout)
            return
        # NCCL's own wait only orders streams: if a member died, this process would wait without end.
        while not work.is_completed():
            if time.monotonic() > self._until:
                raise TransferError("a broadcast between accelerators has not ended in time")
            time.sleep(0.0001)
        work.wait()

    def close(self) -> None:
        """Leaves the group, whatever state it is in; wakes a member of this process that waits in it."""
        members, self._members = self._members, None
        if members is not None:
            members.abort()
