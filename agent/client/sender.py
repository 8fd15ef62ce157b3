"""Sends weights to policy servers, in requests, through a folder, or through a process group."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import torch

from agent.client.connection import Connection
from agent.client.http_calls import Lost, Refused
from agent.wire.messages import Abort, Begin, Done, Ending, Meeting, Pushed, Way, WeightsState, bucket_file
from agent.wire.transfer import BUCKET_BYTES, Checksums, Group, Named, TransferError, buckets, pack

HEADER_ROOM = 2**16
"""Bytes of a request that are left for what is said about tensors, with their count on top."""


@dataclass(frozen=True, slots=True)
class TransferOptions:
    """How weights travel.

    Attributes:
        way: `body`, in requests; `file`, through `folder`; `group`, through a process group (NCCL if all
            have accelerators, else gloo).
        folder: One that this process and all servers see.
        timeout_s: Longest a whole transfer may take.
        checksum: Compare checksums of all tensors at the end.
        bucket_bytes: Most bytes of tensors in a request or a file.
        host: Of this machine, where a group meets (None: the address by which it reaches the servers).
    """

    way: Way = "body"
    folder: Path = Path("/dev/shm")
    timeout_s: float = 300.0
    checksum: bool = False
    bucket_bytes: int = BUCKET_BYTES
    host: str | None = None


class Sender:
    """Sends one transfer.

    A server that cannot be reached any more is left out, unless it is a member of a group: then nobody gets
    anything.

    Args:
        lines: The servers.
        label: Of the transfer.
        version: Of the weights.
        options: How.

    Attributes:
        lost: Servers that were left out, and why.
    """

    def __init__(
        self, connections: Sequence[Connection], label: str, version: int, options: TransferOptions
    ) -> None:
        self._connections, self._label, self._version, self._options = (
            list(connections),
            label,
            version,
            options,
        )
        self._until = time.monotonic() + options.timeout_s
        self._checksums = Checksums()
        self._tensors = 0
        self.lost: dict[Connection, str] = {}

    def send(self, weights: Iterable[Named]) -> None:
        """Sends; returns when all servers that are not `lost` have taken all of it.

        Raises:
            TransferError: One has not, or none is left; none of them samples from anything now.
        """
        with ThreadPoolExecutor(len(self._connections)) as self._threads:
            try:
                if self._options.way == "group":
                    self._by_group(weights)
                else:
                    self._by_buckets(weights)
            except BaseException as error:
                self._abort(str(error) or type(error).__name__)
                raise

    def _by_buckets(self, weights: Iterable[Named]) -> None:
        limit = self._options.bucket_bytes
        if self._options.way == "body":
            limit = min(limit, min(connection.hello.body for connection in self._connections) - HEADER_ROOM)
        self._begin()
        for number, bucket in enumerate(buckets(self._counted(weights), limit)):
            data = pack(bucket)
            if self._options.way == "body":
                query = {"label": self._label, "number": number}
                self._everywhere(
                    lambda connection, d=data, q=query: self._post(connection, "bucket", d, Done, query=q)
                )
            else:
                with self._file(number, data):
                    pushed = Pushed(label=self._label, number=number)
                    self._everywhere(lambda connection, p=pushed: self._post(connection, "file", p, Done))
        self._finish()

    @contextmanager
    def _file(self, number: int, data: bytes) -> Iterator[None]:
        """A bucket's file, while it is needed; nobody else may read it, and none is overwritten."""
        path = self._options.folder / bucket_file(self._label, number)
        try:
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(data)
            yield
        except OSError as error:
            raise TransferError(
                f"cannot write {path}: {error.strerror or error}; choose another folder (generator.folder) "
                "or another way (generator.transfer)"
            ) from error
        finally:
            path.unlink(missing_ok=True)

    def _by_group(self, weights: Iterable[Named]) -> None:
        accelerated = torch.cuda.is_available() and all(
            connection.hello.device == "cuda" for connection in self._connections
        )
        backend = "nccl" if accelerated else "gloo"
        device = torch.device("cuda", torch.cuda.current_device()) if accelerated else torch.device("cpu")
        host, size = self._options.host or _own_address(self._connections), len(self._connections) + 1
        group = Group.lead(host, size, self._left())
        try:
            self._begin(
                lambda rank: Meeting(backend=backend, host=host, port=group.port, size=size, rank=rank)
            )
            group.meet(backend, host, device)
            for name, tensor in self._counted(weights):
                group.send(name, tensor)
            group.end()
            self._finish()  # before the group is closed: the others may not have read all of it yet
        except RuntimeError as error:  # torch's own; they say which connection broke, but not why
            if isinstance(error, TransferError):
                raise
            raise TransferError(self._whose_fault(str(error).partition("\n")[0])) from error
        finally:
            group.close()

    def _counted(self, weights: Iterable[Named]) -> Iterator[Named]:
        tied, sent = self._connections[0].hello.model.tied, set()
        for name, tensor in weights:
            self._left()
            if tied.get(name, name) in sent:
                continue  # another name of what they have
            sent.add(tied.get(name, name))
            self._tensors += 1
            if self._options.checksum:
                self._checksums.add(name, tensor)
            yield name, tensor

    def _begin(self, meeting: Callable[[int], Meeting] | None = None) -> None:
        def begin(connection: Connection) -> None:
            message = Begin(
                label=self._label,
                version=self._version,
                way=self._options.way,
                timeout_s=self._left(),
                checksum=self._options.checksum,
                meeting=meeting and meeting(self._connections.index(connection) + 1),
            )
            self._post(connection, "begin", message, WeightsState)

        self._everywhere(begin)

    def _post(self, connection: Connection, what: str, message: Any, answer: type, **more: Any) -> None:
        left = self._left()
        try:
            connection.calls.post(f"/v1/weights/{what}", message, answer, within=left, patience=left, **more)
        except Refused as error:
            raise TransferError(f"{connection.url}: {error}") from error

    def _finish(self) -> None:
        ending = Ending(label=self._label, tensors=self._tensors, digests=self._checksums.digests)
        self._everywhere(lambda connection: self._post(connection, "finish", ending, WeightsState))

    def _everywhere(self, post: Callable[[Connection], None]) -> None:
        """Posts to all servers at once."""
        for connection, done in [
            (connection, self._threads.submit(post, connection)) for connection in self._connections
        ]:
            try:
                done.result()
            except Lost as error:
                if self._options.way == "group":
                    raise TransferError(f"{connection.url}: {error}") from error
                self.lost[connection] = str(error)
                self._connections.remove(connection)
        if not self._connections:
            raise TransferError(
                "; ".join(f"{connection.url}: {why}" for connection, why in self.lost.items())
            )

    def _left(self) -> float:
        left = self._until - time.monotonic()
        if left <= 0:
            raise TransferError(f"it took longer than {self._options.timeout_s:g} s (generator.timeout_s)")
        return left

    def _whose_fault(self, symptom: str) -> str:
        """What the servers say about a group that broke."""
        said = []
        for connection in self._connections:
            with suppress(Lost, Refused):
                state = connection.calls.get("/v1/weights", WeightsState, within=2.0)
                if state.failed == self._label:
                    said.append(f"{connection.url}: {state.fault}")
        return "; ".join(said) or symptom

    def _abort(self, why: str) -> None:
        """Tells all servers, as far as they can be reached at once, so that nobody waits for more."""
        message = Abort(label=self._label, why=f"its sender gave up: {why}"[:2000])

        def tell(connection: Connection) -> None:
            with suppress(Lost, Refused):
                connection.calls.post("/v1/weights/abort", message, Done, within=2.0)

        list(self._threads.map(tell, self._connections))


def _own_address(connections: Sequence[Connection]) -> str:
    """The address of this machine that servers on others can reach; loopback if there are none such."""
    found = "127.0.0.1"
    for connection in connections:
        parts = urlsplit(connection.url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        kind, _, _, _, where = socket.getaddrinfo(parts.hostname, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(kind, socket.SOCK_DGRAM) as probe:  # connecting a datagram socket sends nothing
            probe.connect(where)
            address = probe.getsockname()[0]
        if not address.startswith("127.") and address != "::1":
            return address
        found = address
    return found
