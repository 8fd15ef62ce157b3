"""Requests that are none, or that nobody may make."""

from __future__ import annotations

import json
import random
import socket

import httpx
import pytest

from envs.server.app import SessionLimits
from envs.server.env_server import serve
from envs.wire.messages import TOKEN_VARIABLE
from serving.address import Address
from serving.errors import ServingError
from serving.secret import read_token
from tests.envs.server.requests_of import opening, play
from tests.envs.server.started import ENVIRONMENT, started


def _deep(rng):
    return b"[" * 100_000


def _cut(rng):
    return b'{"step": [{"session": "a", "position": 1, "act'[: rng.randint(1, 46)]


def _noise(rng):
    return rng.randbytes(rng.randint(1, 200))


def _shape(rng):
    wrong = [
        '{"step": 3}',
        '{"open": [{}]}',
        '{"walk": []}',
        '{"close": [1]}',
        '{"close": [""]}',
        "[]",
        "null",
    ]
    return rng.choice(wrong).encode()


def _value(rng):
    values = ["-1", '"1"', "1.5", "true", "null", "1e400", "NaN", "9" * 5000]
    return b'{"step": [{"session": "a", "position": %s, "action": "look"}]}' % rng.choice(values).encode()


def _surrogate(rng):
    where = rng.choice(["session", "action"])
    one = {"session": "a", "position": 1, "action": "look"} | {where: "\ud800"}
    return json.dumps({"step": [one]}).encode()  # in ASCII, so as an escape


def _many(rng):
    return b'{"close": [%s]}' % b",".join([b'"x"'] * 5000)


def _large(rng):
    return b'{"close": ["%s"]}' % (b"x" * 2**20)


@pytest.mark.parametrize("make", [_deep, _cut, _noise, _shape, _value, _surrogate, _many, _large])
def test_a_hundred_malformed_requests_of_each_kind(client, make):
    rng = random.Random(0)
    headers = {"Content-Type": "application/json"}
    for number in range(100):
        path = ("/v1/play", "/v1/tasks")[number % 2]
        response = client.post(path, content=make(rng), headers=headers)
        assert 400 <= response.status_code < 500, (path, response.status_code, response.text)
        assert len(response.content) < 5_000
    (opened,) = play(client, open=[opening("after")])
    assert opened["trouble"] is None
    play(client, close=["after"])


def test_what_is_no_http_is_no_harm(client, server):
    for junk in (
        b"\x16\x03\x01" + bytes(100),
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /v1/play HTTP/1.1\r\nContent-Le",
    ):
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as raw:
            raw.sendall(junk)
    assert client.get("/v1/play").status_code == 405
    assert client.get("/nowhere").status_code == 404
    assert client.get("/healthz").status_code == 200


def test_a_large_body_without_a_length_is_cut(client):
    def chunks():
        for _ in range(100):
            yield b"x" * 2**16

    try:
        status = client.post("/v1/play", content=chunks()).status_code
    except httpx.TransportError:  # it hung up before all was sent
        status = 413
    assert status == 413
    assert client.get("/healthz").status_code == 200


def test_the_rate_is_limited():
    with started("--rate", "5") as slow, httpx.Client(base_url=slow.url) as client:
        codes = [client.post("/v1/play", json={}).status_code for _ in range(100)]
        assert codes[0] == 200 and 429 in codes
        assert client.get("/healthz").status_code == 200


def test_a_token_guards_everything_but_health():
    with started(TOKEN="0123456789abcdef-right") as guarded, httpx.Client(base_url=guarded.url) as client:
        for path in ("/v1/environment", "/metrics", "/docs", "/openapi.json"):
            assert client.get(path).status_code == 401
            wrong = client.get(path, headers={"Authorization": "Bearer 0123456789abcdef-wrong"})
            assert wrong.status_code == 401
            right = client.get(path, headers={"Authorization": "Bearer 0123456789abcdef-right"})
            assert right.status_code == 200
        assert client.get("/healthz").status_code == 200


def test_other_machines_need_a_token(tmp_path, monkeypatch):
    monkeypatch.delenv("SIBLING_ENV_TOKEN", raising=False)
    with pytest.raises(ServingError, match="needs a token"):
        serve(
            None,
            None,
            ENVIRONMENT,
            address=Address("0.0.0.0"),
            limits=SessionLimits(),
            token=read_token(None, TOKEN_VARIABLE),
        )
    file = tmp_path / "token"
    file.write_text("short\n")
    with pytest.raises(ServingError, match="at least 16"):
        read_token(file, TOKEN_VARIABLE)
    with pytest.raises(ServingError, match="cannot be read"):
        read_token(tmp_path / "none", TOKEN_VARIABLE)
    file.write_text("0123456789abcdef\n")
    assert read_token(file, TOKEN_VARIABLE) == "0123456789abcdef"
