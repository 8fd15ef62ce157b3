"""Runs a server until a signal: then it takes no new sessions, and ends with the open ones."""

from __future__ import annotations

import ipaddress
import signal
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

import uvicorn
from fastapi import FastAPI

from envs.base import EnvError
from envs.pools.pool import EnvPool
from envs.server.app import Limits, make_app
from envs.server.session_metrics import SessionMetrics
from envs.server.sessions import Sessions
from envs.wire.description import Description
from envs.wire.task_book import TaskBook
from serving.patience import PatientProtocol
from serving.secret import TOKEN_VARIABLE


@dataclass(frozen=True)
class Address:
    """Where a server listens.

    Attributes:
        host: Name or address.
        port: 0: any that is free.
        certificate, private_key: Files for HTTPS; None: HTTP.
    """

    host: str = "127.0.0.1"
    port: int = 8101
    certificate: Path | None = None
    private_key: Path | None = None


class Work(Protocol):
    """What a server does for its clients, as far as its beginning and end are concerned."""

    draining: bool

    @property
    def alive(self) -> bool:
        """Whether it works."""

    def __len__(self) -> int:
        """How much of it is open."""


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


def serve(
    pool: EnvPool,
    book: TaskBook,
    environment: Description,
    *,
    address: Address,
    limits: Limits,
    token: str | None,
    drain_seconds: float = 30.0,
) -> None:
    """Serves until a signal; closes the pool.

    Raises:
        EnvError: it would listen to other machines without a token, the address is taken, or its pool failed.
    """
    check_token(address, token, TOKEN_VARIABLE)
    metrics = SessionMetrics()
    desk = Sessions(pool, book, limit=limits.sessions, idle_seconds=limits.idle_seconds, metrics=metrics)
    app = make_app(desk, book, environment, limits=limits, metrics=metrics, token=token)
    try:
        listener = listen(address)
    except EnvError:
        pool.close()
        raise
    if not run_until_signal(app, desk, listener, environment.name, address, drain_seconds):
        raise EnvError("the environment workers failed; see the messages above.")


def check_token(address: Address, token: str | None, variable: str) -> None:
    """Raises an EnvError if other machines could reach a server without a token."""
    if token is None and not _is_loopback(address.host):
        raise EnvError(
            f"serving on {address.host!r} needs a token, since other machines can reach it: put one into a "
            f"file and say --token-file FILE, or set {variable}; or serve on 127.0.0.1."
        )


def listen(address: Address) -> socket.socket:
    """Opens the server's socket; from now on, who connects waits instead of being turned away.

    Raises:
        EnvError: The address is taken, or not this machine's.
    """
    config = uvicorn.Config("", host=address.host, port=address.port, log_level="critical")
    try:
        listener = config.bind_socket()
    except SystemExit:
        raise EnvError(f"cannot listen on {address.host}:{address.port}: is it taken?") from None
    # Connections inherit it. asyncio leaves it out for a socket made without naming TCP, as uvicorn's is, and
    # then every reply waits some 40 ms for the client's delayed acknowledgement of its headers.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listener.listen(config.backlog)
    return listener


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


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
