"""What a policy server counts, for Prometheus."""

from __future__ import annotations

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


class DecoderMetrics:
    """Counters of one server; every name starts with `sibling_policy_`."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        self.conversations = self._gauge("conversations", "Conversations held now")
        self.flying = self._gauge("responses_in_flight", "Responses being sampled or waiting to be")
        self.version = self._gauge("weights_version", "Version of the weights; -1 while there are none")
        self.version.set(-1)
        self.requests = self._counter("requests", "Requests taken; one sent twice counts once")
        self.repeated = self._counter("repeated_requests", "Requests that were sent again")
        self.faults = self._counter("faults", "Requests without a response, by reason", "reason")
        self.tokens = self._counter("sampled_tokens", "Tokens of all responses")
        self.expired = self._counter("expired_clients", "Clients that nobody has heard of for too long")
        self.transfers = self._counter("transfers", "Transfers of weights ended, by result", "result")
        self.refused = self._counter("refused_requests", "HTTP requests refused, by status", "status")
        self.round = self._seconds("round_seconds", "Seconds of a round of decoding")
        self.transfer = self._seconds("transfer_seconds", "Seconds of a whole transfer of weights")

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(f"sibling_policy_{name}", text, registry=self.registry)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"sibling_policy_{name}", text, labels, registry=self.registry)

    def _seconds(self, name: str, text: str) -> Histogram:
        return Histogram(f"sibling_policy_{name}", text, buckets=SECONDS, registry=self.registry)

    def text(self) -> bytes:
        """Returns all of them in Prometheus' text format."""
        return generate_latest(self.registry)
