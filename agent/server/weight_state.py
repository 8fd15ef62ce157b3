"""Which weights a server samples from; while a transfer is under way, none."""

from __future__ import annotations

import sys
import time
import traceback
from pathlib import Path
from threading import Lock

import torch

from agent.fingerprints import Fingerprints, not_held
from agent.policy import Policy, PolicyError
from agent.server.decoder_metrics import DecoderMetrics
from agent.server.incoming_weights import IncomingWeights
from agent.wire.messages import Begin, Ending, ModelDescription, WeightsState
from agent.wire.transfer import TransferError


class NotReady(Exception):
    """The server does not have the weights that are asked for."""


class Stopping(Exception):
    """The server does not take this now."""


class Weights:
    """The transfers of a server. Any thread may call; `load` is the policy's thread's.

    Args:
        model: What it samples from.
        folder: Of transfers by `file`.
        device: Where the policy's weights are.
        metrics: Counted into.
    """

    def __init__(
        self, model: ModelDescription, *, folder: Path, device: torch.device, metrics: DecoderMetrics
    ) -> None:
        self._model, self._folder, self._device, self._metrics = model, folder, device, metrics
        self._lock = Lock()
        self._state = WeightsState()
        self._incoming: IncomingWeights | None = None

    @property
    def state(self) -> WeightsState:
        """Which weights there are."""
        return self._state

    @property
    def due(self) -> bool:
        """Whether a transfer waits for `load`."""
        return self._incoming is not None

    def check(self, label: str) -> None:
        """Checks that the weights are those of a transfer.

        Raises:
            NotReady: They are not.
        """
        state = self._state
        if state.loading is not None:
            raise NotReady(f"weights are being loaded here (transfer {state.loading})")
        if state.label is None:
            why = f": the last transfer failed: {state.fault}" if state.fault else " yet"
            raise NotReady(f"this server has no weights{why}")
        if state.label != label:
            raise NotReady(f"this server has the weights of transfer {state.label}, not of {label}")

    def begin(self, message: Begin) -> None:
        """Begins a transfer, in the place of one under way; one that is known already goes on.

        Raises:
            TransferError: This transfer has failed.
        """
        with self._lock:
            state = self._state
            if message.label in (state.loading, state.label):
                return
            if message.label == state.failed:
                raise TransferError(state.fault)
            if self._incoming is not None:
                self._incoming.abort(f"transfer {message.label} took its place")
            self._incoming = IncomingWeights(message, self._model, self._folder, self._device)
            self._state = WeightsState(loading=message.label)
        self._metrics.version.set(-1)

    def put(self, label: str, number: int, data: bytes | None) -> None:
        """See `IncomingWeights.put`; blocks."""
        self._of(label).put(number, data)

    def end(self, ending: Ending) -> WeightsState:
        """Ends a transfer and waits for what becomes of it.

        Raises:
            TransferError: It failed.
        """
        if ending.label != self._state.label:
            incoming = self._of(ending.label)
            incoming.end(ending)
            # The policy may need a moment for weights that have all arrived.
            while not incoming.over.wait(0.1):
                incoming.check()
        state = self._state
        if state.label != ending.label:
            raise TransferError(state.fault or f"transfer {ending.label} was given up")
        return state

    def abort(self, why: str, label: str | None = None) -> None:
        """Gives up a transfer (None: any), or notes that the one of this label will not come."""
        with self._lock:
            if self._incoming is not None and label in (None, self._incoming.label):
                self._incoming.abort(why)
            elif label not in (None, self._state.label, self._state.failed):
                self._state = self._state.model_copy(update={"failed": label, "fault": why})

    def load(self, policy: Policy) -> None:
        """Has the policy take the weights of the transfer under way, as they come."""
        incoming, began = self._incoming, time.perf_counter()
        assert incoming is not None
        try:
            incoming.check()
            given = Fingerprints(policy.dtype, self._model.tied)
            policy.load_weights(given.passing(incoming.weights()), incoming.version)
            if wrong := given.differences(policy.held_weights()):
                raise PolicyError(not_held(wrong))
        except Exception as error:  # whatever it was: the policy may have half of them
            if not isinstance(error, PolicyError) and not incoming.why:
                traceback.print_exc(file=sys.stderr)
            incoming.abort(
                str(error) if isinstance(error, PolicyError) else f"{type(error).__name__}: {error}"
            )
        why = incoming.why
        with self._lock:
            if self._incoming is incoming:
                self._incoming = None
                self._state = (
                    WeightsState(failed=incoming.label, fault=why)
                    if why
                    else WeightsState(label=incoming.label, version=incoming.version)
                )
        incoming.close(failed=bool(why))
        self._metrics.transfers.labels("failed" if why else "loaded").inc()
        if not why:
            self._metrics.version.set(incoming.version)
            self._metrics.transfer.observe(time.perf_counter() - began)

    def _of(self, label: str) -> IncomingWeights:
        with self._lock:
            if self._incoming is not None and self._incoming.label == label:
                return self._incoming
            state = self._state
        if label == state.failed:
            raise TransferError(state.fault)
        raise TransferError(f"transfer {label} is not under way here")
