"""Runs an environment server until a signal: then it takes no new sessions, and ends with the open ones."""

from __future__ import annotations

import ipaddress
import signal
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn

from envs.base import EnvError
from envs.pool import EnvPool
from envs.server.app import Limits, make_app
from envs.server.description import Description
from envs.server.desk import Desk
from envs.server.metrics import Metrics
from envs.server.secret import TOKEN_VARIABLE
from envs.server.tasks import TaskBook


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


class _Server(uvicorn.Server):
    """Uvicorn, with a first signal that only drains."""

    def __init__(self, config: uvicorn.Config, desk: Desk, drain_seconds: float) -> None:
        super().__init__(config)
        self._desk, self._drain_seconds = desk, drain_seconds
        self._until: float | None = None
        self.failed = False

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Drains; at the second signal, or Ctrl-C, ends at once."""
        if self._until is not None or sig == signal.SIGINT:
            self.should_exit = True
            return
        self._desk.draining = True
        self._until = time.monotonic() + self._drain_seconds

    async def on_tick(self, counter: int) -> bool:
        """Ends when nothing is left to drain, or nothing works any more."""
        drained = self._until is not None and (not len(self._desk) or time.monotonic() > self._until)
        self.failed = not self._desk.alive
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
    if token is None and not _is_loopback(address.host):
        raise EnvError(
            f"serving on {address.host!r} needs a token, since other machines can reach it: put one into a "
            f"file and say --token-file FILE, or set {TOKEN_VARIABLE}; or serve on 127.0.0.1."
        )
    metrics = Metrics()
    desk = Desk(pool, book, limit=limits.sessions, idle_seconds=limits.idle_seconds, metrics=metrics)
    app = make_app(desk, book, environment, limits=limits, metrics=metrics, token=token)
    options: dict[str, Any] = {"log_level": "warning", "access_log": False, "timeout_graceful_shutdown": 10}
    options["timeout_keep_alive"] = 60  # a policy may think for long between two batches
    if address.certificate is not None:
        options |= {"ssl_certfile": address.certificate, "ssl_keyfile": address.private_key}
    config = uvicorn.Config(app, host=address.host, port=address.port, **options)
    server = _Server(config, desk, drain_seconds)
    try:
        listener = config.bind_socket()
    except SystemExit:
        pool.close()
        raise EnvError(f"cannot listen on {address.host}:{address.port}: is it taken?") from None
    # Connections inherit it. asyncio leaves it out for a socket made without naming TCP, as uvicorn's is, and
    # then every reply waits some 40 ms for the client's delayed acknowledgement of its headers.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listener.listen(config.backlog)  # from now on, who connects waits instead of being turned away
    scheme = "http" if address.certificate is None else "https"
    host, port = listener.getsockname()[:2]
    print(
        f"serving {environment.name} at {scheme}://{host}:{port} (schema at /docs), until Ctrl-C", flush=True
    )
    server.run(sockets=[listener])
    if server.failed:
        raise EnvError("the environment workers failed; see the messages above.")


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
