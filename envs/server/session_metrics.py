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

SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class SessionMetrics:
    """Counters of one server; every name starts with `sibling_env_`."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        self.sessions = Gauge("sibling_env_sessions", "Sessions open now", registry=self.registry)
        self.workers_restarted = Gauge(
            "sibling_env_worker_restarts", "Worker processes started again", registry=self.registry
        )
        self.begun = self._counter("sessions_begun", "Sessions begun, by how", "how")
        self.ended = self._counter("sessions_ended", "Sessions ended, by why", "why")
        self.steps = self._counter("steps", "Steps played; one sent twice counts once")
        self.repeated = self._counter("repeated_requests", "Requests answered from memory: sent twice")
        self.troubles = self._counter("troubles", "Requests of a batch not done, by reason", "reason")
        self.refused = self._counter("refused_requests", "HTTP requests refused, by status", "status")
        self.batch = Histogram(
            "sibling_env_batch_size", "Requests in a batch", buckets=SIZES, registry=self.registry
        )
        self.seconds = Histogram(
            "sibling_env_batch_seconds", "Seconds to play a batch", buckets=SECONDS, registry=self.registry
        )

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"sibling_env_{name}", text, labels, registry=self.registry)

    def text(self) -> bytes:
        """Returns all of them in Prometheus' text format."""
        return generate_latest(self.registry)
