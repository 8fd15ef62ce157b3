"""Where a server listens, and who may reach it there."""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from serving.errors import ServingError


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


def check_token(address: Address, token: str | None, variable: str) -> None:
    """Raises a ServingError if other machines could reach a server without a token."""
    if token is None and not _is_loopback(address.host):
        raise ServingError(
            f"serving on {address.host!r} needs a token, since other machines can reach it: put one into a "
            f"file and say --token-file FILE, or set {variable}; or serve on 127.0.0.1."
        )


def listen(address: Address) -> socket.socket:
    """Opens the server's socket; from now on, who connects waits instead of being turned away.

    Raises:
        ServingError: The address is taken, or not this machine's.
    """
    config = uvicorn.Config("", host=address.host, port=address.port, log_level="critical")
    try:
        listener = config.bind_socket()
    except SystemExit:
        raise ServingError(f"cannot listen on {address.host}:{address.port}: is it taken?") from None
    # Connections inherit it. asyncio leaves it out for a socket made without naming TCP, as uvicorn's is, and
    # then every reply waits some 40 ms for the client's delayed acknowledgement of its headers.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listener.listen(config.backlog)
    return listener


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
