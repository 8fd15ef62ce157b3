"""One transfer of weights, on the server: requests bring buckets, the policy's thread takes them."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from queue import Empty, Full, Queue
from threading import Event, Lock

import torch

from agent.wire.messages import Begin, Ending, ModelDescription, bucket_file
from agent.wire.transfer import Assembler, Bucket, Checksums, Group, Named, TransferError, unpack

POLL = 0.05


class IncomingWeights:
    """Receives one transfer.

    `put` and `end` are called by the server's request handlers, in threads; `weights` is used by the policy's
    thread. Between them is room for one bucket, so at most three are in memory: one on its way in, one that
    waits, and one being copied into the policy.

    Args:
        begin: Says what comes, and how.
        model: What has to come.
        folder: Where buckets that come as files lie.
        device: Where the policy's weights are.

    Attributes:
        why: Reason it was given up for; "" if it was not.
        over: Set when the outcome is known.
    """

    def __init__(self, begin: Begin, model: ModelDescription, folder: Path, device: torch.device) -> None:
        self.label, self.version = begin.label, begin.version
        self.over = Event()
        self._begin, self._model, self._folder, self._device = begin, model, folder, device
        self._until = time.monotonic() + begin.timeout_s
        self._queue: Queue[Bucket | Ending] = Queue(maxsize=1)
        self._lock = Lock()  # a bucket that is sent again waits for its first time
        self._expected = 0
        self._ending: Ending | None = None  # as it was put into the queue
        self._last: Bucket | Ending = []  # as it came out
        self._group: Group | None = None
        self.why = ""

    def put(self, number: int, data: bytes | None) -> None:
        """Takes bucket `number`: its bytes, or None for a file; one that was taken before is ignored.

        Raises:
            TransferError: The transfer was given up, or this is not the next bucket, or no bucket.
        """
        with self._lock:
            if number < self._expected:
                return
            if number > self._expected or self._ending is not None or self._begin.way == "group":
                raise TransferError(f"bucket {number} came where number {self._expected} was to follow")
            bucket = unpack(self._read(number) if data is None else data)
            for name, _, _, shape in bucket:
                self._check_shape(name, shape)
            self._put(bucket)
            self._expected += 1

    def end(self, ending: Ending) -> None:
        """Says that all has been sent; what becomes of it is known when `over` is set.

        Raises:
            TransferError: The transfer was given up.
        """
        with self._lock:
            if self._ending is None:
                self._put(ending)
                self._ending = ending

    def abort(self, why: str) -> None:
        """Gives the transfer up."""
        self.why = self.why or why
        if self._group is not None:
            self._group.close()

    def weights(self) -> Iterator[Named]:
        """Yields the weights as they come; ends without an error only if all came, as they were sent.

        Raises:
            TransferError: They did not.
        """
        checksums, arrived = Checksums(), []
        for name, tensor in self._met() if self._begin.way == "group" else self._unpacked():
            if self._begin.checksum:
                checksums.add(name, tensor)
            arrived.append(self._model.tied.get(name, name))
            yield name, tensor
        ending = self._last
        assert isinstance(ending, Ending)
        if len(arrived) != ending.tensors:
            raise TransferError(f"{len(arrived)} weights arrived of {ending.tensors} sent")
        missing = sorted(self._model.weights.keys() - set(arrived))
        if missing:
            more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
            raise TransferError(f"no value for {', '.join(missing[:3])}{more} was sent")
        wrong = checksums.differences(ending.digests) if self._begin.checksum else []
        if wrong:
            raise TransferError(
                f"the checksums of {len(wrong)} weights differ from the sender's ({', '.join(wrong[:3])}): "
                "they changed on the way"
            )

    def close(self, failed: bool) -> None:
        """Frees what the transfer held, and says that it is over.

        Args:
            failed: Its files are deleted, for a sender that died cannot.
        """
        if self._group is not None:
            self._group.close()
        if failed:
            for file in self._folder.glob(bucket_file(self.label, "*")):
                file.unlink(missing_ok=True)
        self.over.set()

    def left(self) -> float:
        """Seconds until the transfer has to be over."""
        return self._until - time.monotonic()

    def check(self) -> None:
        """Raises a TransferError if the transfer was given up, or takes too long."""
        if self.why:
            raise TransferError(self.why)
        if self.left() < 0:
            raise TransferError(f"the weights have not arrived within {self._begin.timeout_s:g} s")

    def _unpacked(self) -> Iterator[Named]:
        """What comes in buckets."""
        whole = Assembler()
        while not isinstance(item := self._next(), Ending):
            yield from whole.take(item)
        whole.finish()
        self._last = item

    def _met(self) -> Iterator[Named]:
        """What comes through a group."""
        meeting = self._begin.meeting
        timeout = max(self.left(), 0.1)
        self._group = Group.join(meeting.host, meeting.port, meeting.rank, meeting.size, timeout)
        self.check()  # an abort before there was a group has not closed it
        self._group.meet(meeting.backend, meeting.host, self._device)
        for name, tensor in self._group.receive(self.check):
            self._check_shape(name, list(tensor.shape))
            yield name, tensor
        self._last = self._next()  # no buckets are taken beside a group

    def _check_shape(self, name: str, shape: list[int]) -> None:
        known = self._model.weights.get(self._model.tied.get(name, name))
        if known is None:
            raise TransferError(f"unknown weight {name!r}: the model here has none of that name")
        if known != shape:
            raise TransferError(
                f"{name} is {tuple(shape)}, the policy's is {tuple(known)}: these are another model's weights"
            )

    def _read(self, number: int) -> bytes:
        """Reads a bucket's file, and nothing that a link of its name leads to."""
        path = self._folder / bucket_file(self.label, number)
        try:
            with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    raise OSError("it is no file")
                return file.read()
        except OSError as error:
            raise TransferError(
                f"bucket {number} cannot be read ({error.strerror or error}: {path}): the folder has to be "
                "one that sender and server share"
            ) from error

    def _put(self, item: Bucket | Ending) -> None:
        while True:
            self.check()
            try:
                return self._queue.put(item, timeout=POLL)
            except Full:
                continue

    def _next(self) -> Bucket | Ending:
        while True:
            self.check()
            try:
                return self._queue.get(timeout=POLL)
            except Empty:
                continue
