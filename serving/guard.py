"""Turns requests away before anything reads them: no token, too large, too slow, or too many."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Protocol

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from prometheus_client import Counter

OPEN_PATHS = ("/healthz", "/readyz")
"""Answered without a token, for load balancers."""

BODY_SECONDS = 30.0
"""Time a client has to send a body."""

DISCARD_SECONDS = 2.0
"""Time in which the rest of a refused body is still taken in."""

_CLIENTS = 4096


class Refusals(Protocol):
    """Metrics with a counter of refused requests, by status."""

    refused: Counter


class Guard:
    """ASGI middleware.

    Args:
        app: What is guarded.
        token: Asked of every request but those to `OPEN_PATHS`; None: of none.
        body: Most bytes of a request.
        rate: Most requests per second and client address, over some seconds.
        metrics: Refusals are counted there.
        clock: Seconds from any start; monotonic.
    """

    def __init__(
        self,
        app: Any,
        *,
        token: str | None,
        body: int,
        rate: float,
        metrics: Refusals,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._app, self._token, self._body, self._rate = app, token, body, rate
        self._metrics, self._clock = metrics, clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """See ASGI."""
        if scope["type"] != "http" or scope["path"] in OPEN_PATHS:
            return await self._app(scope, receive, send)
        headers = {name.lower(): value for name, value in scope["headers"]}
        if self._token is not None and not self._known(headers.get(b"authorization", b"")):
            return await self._refuse(send, 401, "send the header `Authorization: Bearer TOKEN`")
        if not self._within_rate((scope.get("client") or ("?",))[0]):
            return await self._refuse(send, 429, f"more than {self._rate:g} requests per second")
        length = headers.get(b"content-length", b"0")
        body = None if length.isdigit() and int(length) > self._body else await self._read(receive)
        if body is None:
            await self._discard(receive)
            return await self._refuse(
                send, 413, f"a request has at most {self._body} bytes, or {BODY_SECONDS:g} s to come"
            )

        async def once() -> dict[str, Any]:
            nonlocal body
            if body is None:
                return await receive()
            message, body = {"type": "http.request", "body": body, "more_body": False}, None
            return message

        await self._app(scope, once, send)

    def _known(self, header: bytes) -> bool:
        kind, _, token = header.partition(b" ")
        return kind.lower() == b"bearer" and hmac.compare_digest(token.strip(), self._token.encode())

    def _within_rate(self, client: str) -> bool:
        """A bucket of two seconds' requests each client, refilled at the rate."""
        now, most = self._clock(), 2 * self._rate
        left, then = self._buckets.pop(client, (most, now))
        left = min(most, left + (now - then) * self._rate)
        self._buckets[client] = (max(0.0, left - 1.0), now)
        if len(self._buckets) > _CLIENTS:
            self._buckets.popitem(last=False)
        return left >= 1.0

    async def _read(self, receive: Any) -> bytes | None:
        """Returns the body; None if it is too large, or comes too slowly."""
        parts, size = [], 0
        try:
            async with asyncio.timeout(BODY_SECONDS):
                while True:
                    message = await receive()
                    if message["type"] != "http.request":
                        return None
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > self._body:
                        return None
                    if not message.get("more_body"):
                        return b"".join(parts)
        except TimeoutError:
            return None

    async def _discard(self, receive: Any) -> None:
        """Takes in the rest, within bounds: closing on bytes unread resets the connection, answer and all."""
        size = 0
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DISCARD_SECONDS):
                while size < 4 * self._body:
                    message = await receive()
                    if not message.get("more_body"):
                        return
                    size += len(message["body"])

    async def _refuse(self, send: Any, status: int, why: str) -> None:
        self._metrics.refused.labels(str(status)).inc()
        body = json.dumps({"detail": why}).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        # What may be left of the body is not read, so the connection cannot be used again.
        headers += [(b"connection", b"close")] if status == 413 else []
        headers += [(b"retry-after", b"1")] if status == 429 else []
        headers += [(b"www-authenticate", b"Bearer")] if status == 401 else []
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


async def unreadable(request: Request, error: Exception) -> Response:
    """Says where a request is wrong, without what was in it: that may be large, or no text at all."""
    assert isinstance(error, RequestValidationError)
    faults = [{"where": [str(part) for part in e["loc"]], "what": e["msg"]} for e in error.errors()[:10]]
    return JSONResponse({"detail": faults}, 422)
