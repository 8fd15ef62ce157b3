"""Runs a policy server until a signal."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from agent.policy import Policy, PolicyError
from agent.server.app import ConversationLimits, make_app
from agent.server.decoder import Decoder
from agent.server.decoder_metrics import DecoderMetrics
from agent.server.weight_state import Weights
from agent.wire.messages import PROTOCOL, TOKEN_VARIABLE, Hello, ModelDescription
from serving.address import Address, check_token, listen
from serving.running import run_until_signal


@dataclass(frozen=True)
class Served:
    """What a server serves.

    Attributes:
        policy: Any.
        model: What it samples from.
        device: Where its weights are.
        name: For people.
    """

    policy: Policy
    model: ModelDescription
    device: torch.device
    name: str = "a policy"


def serve(
    served: Served,
    *,
    address: Address,
    limits: ConversationLimits,
    token: str | None,
    folder: Path = Path("/dev/shm"),
    drain_seconds: float = 30.0,
) -> None:
    """Serves until a signal; then responses in flight are ended first.

    Args:
        served: What is served.
        address: Where.
        limits: What clients may do.
        token: Asked of them; None: of none, on this machine only.
        folder: Of transfers of weights by `file`; nothing outside it is read.
        drain_seconds: Longest that responses in flight have after a signal.

    Raises:
        ServingError: It would listen to other machines without a token, or the address is taken.
        PolicyError: The policy failed.
    """
    check_token(address, token, TOKEN_VARIABLE)
    metrics = DecoderMetrics()
    weights = Weights(served.model, folder=folder, device=served.device, metrics=metrics)
    decoder = Decoder(
        served.policy,
        served.model.vocabulary,
        weights,
        conversations=limits.conversations,
        idle_seconds=limits.idle_seconds,
        metrics=metrics,
    )
    hello = Hello(protocol=PROTOCOL, model=served.model, device=served.device.type, body=limits.body)
    app = make_app(decoder, weights, hello, limits=limits, metrics=metrics, token=token)
    if not run_until_signal(app, decoder, listen(address), served.name, address, drain_seconds):
        raise PolicyError("the policy failed; see the messages above.")
