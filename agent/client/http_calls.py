"""HTTP calls to one policy server, retried until they succeed or retrying is pointless."""

from __future__ import annotations

import ssl
import time
from typing import Any, TypeVar

import httpx
from pydantic import BaseModel, ValidationError
from tenacity import RetryCallState, Retrying, retry_if_exception_type, wait_exponential

from agent.wire.messages import PROTOCOL, TOKEN_VARIABLE, Hello, ModelDescription

CONNECT_SECONDS = 3.0
PATIENCE = 15.0
"""Longest wait for an answer that is not held back, before the call is made again (s)."""

REFUSED_TRIES = 4
"""Connections refused in a row after which nobody is there any more."""

Message = TypeVar("Message", bound=BaseModel)


class Lost(Exception):
    """The server cannot be used: nobody answers, or not what a policy server answers."""


class Refused(Exception):
    """The server does not do it, and would not the next time."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


class _Again(Exception):
    """It may succeed the next time."""


class HttpCalls:
    """A server's address. Any thread may call.

    Args:
        url: Its base.
        token: Sent with every call.
        timeout_s: Longest that a call is tried for.
    """

    def __init__(self, url: str, token: str | None, timeout_s: float) -> None:
        self.url, self._timeout_s = url, timeout_s
        self._closed = False
        try:
            self._client = httpx.Client(
                base_url=url,
                headers={} if token is None else {"Authorization": f"Bearer {token}"},
                limits=httpx.Limits(keepalive_expiry=30.0),
                verify=ssl.create_default_context() if url.startswith("https:") else False,
                trust_env=False,  # policy servers are near; a proxy for the web is not meant
            )
        except httpx.InvalidURL as error:
            raise Lost(f"this is no address: {error}") from error

    def hello(self, model: ModelDescription, within: float | None = None) -> Hello:
        """Asks what the server is.

        Args:
            model: What it has to sample from.
            within: Longest to try (s; None: `timeout_s`).

        Raises:
            Lost: Nobody answers, or no policy server does.
            Refused: It samples from another model, or does not take the token.
        """
        hello = self.get("/v1/policy", Hello, within=within)
        found = model.differences(hello.model)
        if hello.protocol != PROTOCOL:
            found.insert(0, f"protocol is {hello.protocol} there, {PROTOCOL} here")
        if found:
            raise Refused(412, f"serves another model: {'; '.join(found)}")
        return hello

    def get(self, path: str, answer: type[Message], within: float | None = None) -> Message:
        """Gets something; see `post`."""
        return self._call("GET", path, None, answer, within, PATIENCE, {})

    def post(
        self,
        path: str,
        message: BaseModel | bytes,
        answer: type[Message],
        *,
        within: float | None = None,
        patience: float = PATIENCE,
        query: dict[str, Any] | None = None,
    ) -> Message:
        """Posts something.

        Args:
            path: Where.
            message: What.
            answer: What the answer has to be.
            within: Longest to try (s; None: `timeout_s`).
            patience: Longest to wait for an answer before it is sent again (s).
            query: Of the address.

        Raises:
            Lost: Nobody answers, or no policy server does.
            Refused: The server does not do it.
        """
        body = message if isinstance(message, bytes) else message.model_dump_json().encode()
        return self._call("POST", path, body, answer, within, patience, query or {})

    def stop(self) -> None:
        """Makes no call again; those under way may still succeed."""
        self._closed = True

    def close(self) -> None:
        """Closes its connections; no call may be under way."""
        self._client.close()

    def _call(
        self,
        method: str,
        path: str,
        body: bytes | None,
        answer: type[Message],
        within: float | None,
        patience: float,
        query: dict[str, Any],
    ) -> Message:
        within = self._timeout_s if within is None else within
        until = time.monotonic() + within
        again: Any = Retrying(
            stop=lambda state: self._closed or time.monotonic() > until or _nobody_there(state),
            wait=wait_exponential(0.05, max=1.0),
            retry=retry_if_exception_type((httpx.TransportError, _Again)),
            reraise=True,
        )
        try:
            return again(self._try, method, path, body, answer, until, patience, query)
        except (httpx.TransportError, _Again) as error:
            text = str(error) if isinstance(error, _Again) else f"{type(error).__name__}: {error}"
            raise Lost(f"no answer to {path}: {text}") from error

    def _try(
        self,
        method: str,
        path: str,
        body: bytes | None,
        answer: type[Message],
        until: float,
        patience: float,
        query: dict[str, Any],
    ) -> Message:
        left = max(0.05, until - time.monotonic())
        timeout = httpx.Timeout(min(left, patience), connect=min(left, CONNECT_SECONDS))
        raw = isinstance(body, bytes) and bool(query)
        headers = {"Content-Type": "application/octet-stream" if raw else "application/json"}
        try:
            response = self._client.request(
                method, path, content=body, params=query, headers=headers, timeout=timeout
            )
        except httpx.DecodingError as error:
            raise Lost(f"answers {path} with what cannot be decoded: {error}") from error
        status, detail = response.status_code, _detail(response)
        if status in (408, 429, 502, 503, 504):
            raise _Again(f"status {status}: {detail}")
        if status in (401, 403):
            raise Refused(status, f"does not take the token: set {TOKEN_VARIABLE} to the one it has")
        if 400 <= status < 500:
            raise Refused(status, detail)
        if status != 200:
            raise Lost(f"answers {path} with status {status}: {detail}")
        try:
            return answer.model_validate_json(response.content)
        except ValidationError as error:
            fault = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, fault["loc"])) or "the answer"
            raise Lost(f"answers {path} as no policy server does ({where}: {fault['msg']})") from error


def _nobody_there(state: RetryCallState) -> bool:
    """Whether connections are refused again and again: the process has ended, and its weights with it."""
    error: BaseException | None = state.outcome.exception() if state.outcome else None
    while error is not None:
        if isinstance(error, ConnectionRefusedError):
            return state.attempt_number >= REFUSED_TRIES
        error = error.__cause__ or error.__context__
    return False


def _detail(response: httpx.Response) -> str:
    """What the server says of a failure, in at most 2,000 characters."""
    try:
        said = response.json()["detail"]
    except (ValueError, KeyError, TypeError):
        said = response.content[:200].decode(errors="replace")
    return (said if isinstance(said, str) else str(said))[:2000]
