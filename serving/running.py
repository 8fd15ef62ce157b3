"""Runs a server until a signal; then it takes nothing new and finishes what is open."""

from __future__ import annotations

import asyncio
import signal
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import FrameType
from typing import Any, Protocol

import uvicorn
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response

from serving.address import Address
from serving.guard import Guard, unreadable
from serving.metrics import ServerMetrics
from serving.patience import PatientProtocol


class Work(Protocol):
    """What a server does for its clients.

    Attributes:
        draining: Nothing new is taken any more.
    """

    draining: bool

    @property
    def alive(self) -> bool:
        """Whether it works."""

    def __len__(self) -> int:
        """How much of it is open."""

    def start(self) -> None:
        """Begins."""

    def close(self) -> None:
        """Ends, with everything that is open."""


def make_server_app(
    work: Work,
    *,
    title: str,
    version: str,
    description: str | None,
    metrics: ServerMetrics,
    token: str | None,
    body: int,
    rate: float,
) -> FastAPI:
    """Returns an application that starts `work` and closes it at the end, guarded, with health and metrics.

    Args:
        work: What is served; the routes to it are the caller's to add.
        title, version, description: For /docs.
        metrics: Handed out at /metrics; refusals are counted there.
        token: Asked of every request but those of `serving.guard.OPEN_PATHS`; None: of none.
        body: Most bytes of a request.
        rate: Most requests per second and client address.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        work.start()
        yield
        await asyncio.to_thread(work.close)

    app = FastAPI(title=title, version=version, description=description or "", lifespan=lifespan)
    app.add_middleware(Guard, token=token, body=body, rate=rate, metrics=metrics)
    app.add_exception_handler(RequestValidationError, unreadable)

    @app.get("/healthz")
    async def healthz() -> Response:
        """Whether the process works."""
        return JSONResponse({"status": "ok" if work.alive else "dead"}, 200 if work.alive else 503)

    @app.get("/metrics")
    async def prometheus() -> Response:
        """Figures for Prometheus."""
        return Response(metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    return app


class _Server(uvicorn.Server):
    """Uvicorn, with a first signal that only drains."""

    def __init__(self, config: uvicorn.Config, work: Work, drain_seconds: float) -> None:
        super().__init__(config)
        self._work, self._drain_seconds = work, drain_seconds
        self._until: float | None = None
        self.failed = False

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Drains; at the second signal, or Ctrl-C, ends at once."""
        if self._until is not None or sig == signal.SIGINT:
            self.should_exit = True
            return
        self._work.draining = True
        self._until = time.monotonic() + self._drain_seconds

    async def on_tick(self, counter: int) -> bool:
        """Ends when nothing is left to drain, or nothing works any more."""
        drained = self._until is not None and (not len(self._work) or time.monotonic() > self._until)
        self.failed = not self._work.alive
        self.should_exit = self.should_exit or drained or self.failed
        return await super().on_tick(counter)


def run_until_signal(
    app: FastAPI, work: Work, listener: socket.socket, what: str, address: Address, drain_seconds: float
) -> bool:
    """Says where it serves `what`, and does until a signal; returns whether its work went well to the end."""
    options: dict[str, Any] = {"log_level": "warning", "access_log": False, "timeout_graceful_shutdown": 10}
    options["http"] = PatientProtocol
    options["timeout_keep_alive"] = 60  # a client may think for long between two requests
    if address.certificate is not None:
        options |= {"ssl_certfile": address.certificate, "ssl_keyfile": address.private_key}
    server = _Server(uvicorn.Config(app, **options), work, drain_seconds)
    scheme = "http" if address.certificate is None else "https"
    host, port = listener.getsockname()[:2]
    print(f"serving {what} at {scheme}://{host}:{port} (schema at /docs), until Ctrl-C", flush=True)
    server.run(sockets=[listener])
    return not server.failed
