"""What an environment server counts."""

from __future__ import annotations

from serving.metrics import ServerMetrics

SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class SessionMetrics(ServerMetrics):
    """Counters of one server; every name starts with `sibling_env_`."""

    def __init__(self) -> None:
        super().__init__("sibling_env")
        self.sessions = self.gauge("sessions", "Sessions open now")
        self.workers_restarted = self.gauge("worker_restarts", "Worker processes started again")
        self.begun = self.counter("sessions_begun", "Sessions begun, by how", "how")
        self.ended = self.counter("sessions_ended", "Sessions ended, by why", "why")
        self.steps = self.counter("steps", "Steps played; one sent twice counts once")
        self.repeated = self.counter("repeated_requests", "Requests answered from memory: sent twice")
        self.troubles = self.counter("troubles", "Requests of a batch not done, by reason", "reason")
        self.batch = self.histogram("batch_size", "Requests in a batch", SIZES)
        self.seconds = self.histogram("batch_seconds", "Seconds to play a batch", SECONDS)
