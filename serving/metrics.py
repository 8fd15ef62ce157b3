"""What a server counts, for Prometheus."""

from __future__ import annotations

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

disable_created_metrics()


class ServerMetrics:
    """Base: counters of one server, in a registry of its own, whose names all begin alike.

    Attributes:
        refused: HTTP requests that were turned away, by status.
    """

    def __init__(self, prefix: str) -> None:
        """Counts nothing yet; every name starts with `prefix` and an underscore."""
        self._prefix, self._registry = prefix, CollectorRegistry()
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        self.refused = self.counter("refused_requests", "HTTP requests refused, by status", "status")

    def counter(self, name: str, text: str, *labels: str) -> Counter:
        """Makes a counter."""
        return Counter(f"{self._prefix}_{name}", text, labels, registry=self._registry)

    def gauge(self, name: str, text: str) -> Gauge:
        """Makes a gauge."""
        return Gauge(f"{self._prefix}_{name}", text, registry=self._registry)

    def histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        """Makes a histogram."""
        return Histogram(f"{self._prefix}_{name}", text, buckets=buckets, registry=self._registry)

    def text(self) -> bytes:
        """Returns all of them in Prometheus' text format."""
        return generate_latest(self._registry)
