"""What a policy server counts."""

from __future__ import annotations

from serving.metrics import ServerMetrics

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


class DecoderMetrics(ServerMetrics):
    """Counters of one server; every name starts with `sibling_policy_`."""

    def __init__(self) -> None:
        super().__init__("sibling_policy")
        self.conversations = self.gauge("conversations", "Conversations held now")
        self.flying = self.gauge("responses_in_flight", "Responses being sampled or waiting to be")
        self.version = self.gauge("weights_version", "Version of the weights; -1 while there are none")
        self.version.set(-1)
        self.requests = self.counter("requests", "Requests taken; one sent twice counts once")
        self.repeated = self.counter("repeated_requests", "Requests that were sent again")
        self.faults = self.counter("faults", "Requests without a response, by reason", "reason")
        self.tokens = self.counter("sampled_tokens", "Tokens of all responses")
        self.expired = self.counter("expired_clients", "Clients that nobody has heard of for too long")
        self.transfers = self.counter("transfers", "Transfers of weights ended, by result", "result")
        self.round = self.histogram("round_seconds", "Seconds of a round of decoding", SECONDS)
        self.transfer = self.histogram("transfer_seconds", "Seconds of a whole transfer of weights", SECONDS)
