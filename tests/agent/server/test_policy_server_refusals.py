"""What a policy on servers refuses, and what it makes of servers that are none."""

from __future__ import annotations

import json
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from agent.policies.server_policy import ServerError, ServerPolicy, TransferOptions
from agent.policy import PolicyError, Sampling
from agent.types import Request
from agent.wire.messages import PROTOCOL, Hello, WeightsState
from tests.agent.server.on_servers import MODEL, TIMEOUT, connected, requests
from tests.agent.server.started import (
    TOKEN,
    VOCAB,
    WINDOW,
    toy_description,
    toy_model,
)


@pytest.mark.parametrize(
    ("description", "message"),
    [
        (lambda: toy_description(toy_model(vocab=VOCAB + 1)), "vocabulary is 400 there, 401 here"),
        (lambda: toy_description(toy_model(layers=3)), r"weight model\.layers\.2.* is missing there"),
        (lambda: toy_description(stops=(1, 4)), r"stop_ids is \[1, 3\] there, \[1, 4\] here"),
        (lambda: toy_description(window=800), "window is 1500 there, 800 here"),
    ],
)
def test_another_model_is_refused(server, description, message):
    with pytest.raises(ServerError, match=f"{server.url}.*serves another model.*{message}"):
        ServerPolicy([server.url], description(), token=TOKEN, timeout_s=TIMEOUT)


def test_a_wrong_token_is_refused(server):
    for token in (None, "0123456789abcdef-wrong"):
        with pytest.raises(ServerError, match="does not take the token: set SIBLING_POLICY_TOKEN"):
            ServerPolicy([server.url], toy_description(), token=token, timeout_s=TIMEOUT)


def test_nothing_is_asked_before_there_are_weights(server):
    with (
        connected(server, loaded=False) as policy,
        pytest.raises(PolicyError, match="load_weights comes first"),
    ):
        policy.generate(requests(1), Sampling())


@pytest.mark.parametrize("urls", [[], ["http://a", "http://a/"], ["127.0.0.1:80"], ["http://a:b"]])
def test_addresses_that_are_none(urls):
    with pytest.raises(ServerError, match="address"):
        ServerPolicy(urls, toy_description(), timeout_s=1.0)


def test_nobody_there():
    with socket.socket() as taken:  # bound, but nobody listens
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(ServerError, match="refused.*`run.py serve-policy` starts one"):
            ServerPolicy([f"http://127.0.0.1:{taken.getsockname()[1]}"], toy_description())


def test_nobody_answers():
    with socket.create_server(("127.0.0.1", 0)) as silent:  # the kernel accepts, and nobody ever answers
        began = time.monotonic()
        with pytest.raises(ServerError, match="no answer to /v1/policy: ReadTimeout"):
            ServerPolicy([f"http://127.0.0.1:{silent.getsockname()[1]}"], toy_description(), timeout_s=0.5)
        assert time.monotonic() - began < 5


HELLO = Hello(protocol=PROTOCOL, model=toy_description(), device="cpu", body=10**6).model_dump()


STATE = WeightsState(label="x").model_dump()


STARTED = {"record": "r"}


ENDED = {"delivery": 1, "number": 0, "version": 1, "ids": [5], "logps": [-1.0], "finish": "stop"}


@pytest.mark.parametrize(
    ("hello", "started", "collected", "message"),
    [
        ("<html>it works!</html>", None, None, "answers /v1/policy as no policy server does"),
        ({"status": "ok"}, None, None, "answers /v1/policy as no policy server does"),
        (HELLO | {"protocol": 9}, None, None, "protocol is 9 there"),
        (HELLO, "\x00\xff", None, "answers /v1/start as"),
        (HELLO, {"record": 3}, None, "answers /v1/start as.*record"),
        (HELLO, STARTED, {"responses": "all"}, "answers /v1/collect as"),
        (HELLO, STARTED, {"responses": [ENDED | {"ids": ["a"]}]}, "answers /v1/collect as.*ids"),
        (HELLO, STARTED, {"responses": [ENDED | {"version": 7}]}, "sampled from version 7, not 1"),
    ],
)
def test_garbage_is_told_apart(hello, started, collected, message):
    answers = {
        "policy": hello,
        "start": started,
        "collect": collected,
        "bucket": {},
        "release": {},
        "abort": {},
    }

    class Garbage(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            self.rfile.read(int(self.headers["Content-Length"] or 0))
            what = answers.get(self.path.partition("?")[0].rpartition("/")[2], STATE)
            body = (what if isinstance(what, str) else json.dumps(what)).encode("latin-1")
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Garbage) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            with pytest.raises(ServerError, match=message):
                policy = ServerPolicy(
                    [f"http://127.0.0.1:{server.server_port}"], toy_description(), timeout_s=10.0
                )
                policy.load_weights(MODEL.named_parameters(), 1)
                policy.generate(requests(1), Sampling())
        finally:
            server.shutdown()


def test_a_response_that_is_refused_is_the_callers_fault(server):
    message = f"token {VOCAB} is none: the vocabulary has {VOCAB}"
    with connected(server) as policy, pytest.raises(PolicyError, match=message):
        policy.generate([Request(0, [VOCAB], True, 0, 5)], Sampling())


def test_the_window_is_the_servers(server):
    with connected(server) as policy:
        assert policy.window == WINDOW
        with pytest.raises(PolicyError, match=f"leave room in the window \\({WINDOW}\\)"):
            policy.generate([Request(0, [5] * WINDOW, True, 0, 5)], Sampling())


def test_options_of_transfers_default_to_the_policys_patience(server):
    with connected(server, loaded=False, timeout=7.0) as policy:
        assert policy._transfer == TransferOptions(timeout_s=7.0)
