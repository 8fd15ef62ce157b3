"""Requests that are none, or that nobody may make."""

from __future__ import annotations

import json
import random
import socket

import httpx
import pytest
import torch

from agent.server.app import ConversationLimits
from agent.server.policy_server import Served, serve
from serving.address import Address
from serving.errors import ServingError
from tests.agent.server.on_servers import TIMEOUT
from tests.agent.server.requests_of import ASK, collect, start
from tests.agent.server.started import (
    local_policy,
    toy_description,
    toy_model,
)


def _noise(rng):
    return rng.randbytes(rng.randint(1, 200))


def _deep(rng):
    return b"[" * 100_000


def _shape(rng):
    return rng.choice(
        [b'{"ask": 3}', b"[]", b"null", b'{"client": ""}', b'{"walk": []}', b'{"label": "a b"}']
    )


def _value(rng):
    wrong = ["-1", '"1"', "1.5", "true", "null", "1e400", "NaN", "9" * 5000, "[1]", "18446744073709551616"]
    ask = json.dumps(ASK | {rng.choice(["number", "conversation", "seed", "max_new_tokens"]): "X"})
    body = json.dumps({"client": "a", "label": "b", "temperature": 1.0, "ask": "Y"})
    bad = rng.choice([value for value in wrong if value != "true"])
    return body.replace('"Y"', "[" + ask.replace('"X"', bad) + "]").encode()


def _ids(rng):
    bad = rng.choice(['"5"', "[-1]", "[1.5]", "[null]", "{}", "[[5]]", "[9999999999999999999999]"])
    ask = json.dumps(ASK).replace("[5, 6, 7]", bad)
    return f'{{"client": "a", "label": "b", "temperature": 1.0, "ask": [{ask}]}}'.encode()


def _temperature(rng):
    bad = rng.choice(["-1", "NaN", "Infinity", '"hot"', "null"])
    return f'{{"client": "a", "label": "b", "temperature": {bad}, "ask": []}}'.encode()


def _surrogate(rng):
    return json.dumps({"client": "\ud800", "label": "b", "temperature": 1.0, "ask": []}).encode()


def _many(rng):
    return b'{"client": "a", "conversations": [%s]}' % b",".join([b"1"] * 70_000)


def _large(rng):
    return b'{"client": "%s"}' % (b"x" * 2**21)


PATHS = ("start", "collect", "release", "weights/begin", "weights/file", "weights/finish", "weights/abort")


@pytest.mark.parametrize(
    "make", [_noise, _deep, _shape, _value, _ids, _temperature, _surrogate, _many, _large]
)
def test_a_hundred_malformed_requests_of_each_kind(labelled, make):
    rng = random.Random(0)
    headers = {"Content-Type": "application/json"}
    count = 100 if make not in (_large, _many) else 10
    for number in range(count):
        path = f"/v1/{PATHS[number % len(PATHS)]}"
        response = labelled.post(path, content=make(rng), headers=headers)
        assert 400 <= response.status_code < 500, (path, response.status_code, response.text)
        assert "detail" in response.json() and len(response.content) < 5_000
    record = start(labelled, ASK, name=make.__name__).json()["record"]
    assert collect(labelled, make.__name__, record)[0]["ids"], "it works as before"


def test_what_is_no_http_is_no_harm(labelled, server):
    for junk in (b"\x16\x03\x01" + bytes(100), b"POST /v1/start HTTP/1.1\r\nContent-Le"):
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as raw:
            raw.sendall(junk)
    assert labelled.get("/v1/start").status_code == 405
    assert labelled.get("/nowhere").status_code == 404
    assert labelled.post("/v1/weights/bucket", params={"label": "x"}, content=b"x").status_code == 422
    assert labelled.get("/healthz").status_code == 200


def test_a_token_guards_everything_but_health(server):
    with httpx.Client(base_url=server.url, timeout=TIMEOUT) as stranger:
        for path in ("/v1/policy", "/v1/weights", "/metrics", "/docs", "/openapi.json"):
            assert stranger.get(path).status_code == 401
        assert stranger.post("/v1/weights/begin", json={}).status_code == 401
        assert stranger.get("/healthz").status_code == 200


def test_other_machines_need_a_token():
    served = Served(local_policy(toy_model()), toy_description(), torch.device("cpu"))
    with pytest.raises(ServingError, match="needs a token.*SIBLING_POLICY_TOKEN"):
        serve(served, address=Address("0.0.0.0"), limits=ConversationLimits(), token=None)
