"""Responses from real servers equal those of the policy in process, whatever happens to the servers."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import threading
import time
import warnings
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import numpy as np
import pytest

from agent.policies.server_policy import ServerError, ServerPolicy, TransferOptions
from agent.policy import PolicyError, Sampling
from agent.rollout.options import RolloutOptions
from agent.rollout.rollout import rollout
from agent.types import Request
from agent.wire.messages import PROTOCOL, Hello, WeightsState
from tests.agent.server.started import (
    HEADERS,
    STOPS,
    TOKEN,
    VOCAB,
    WINDOW,
    local_policy,
    toy_description,
    toy_model,
)
from tests.agent.test_agent_rollout import TOKENIZER, TURNS, build
from tests.toy import ToyEnv, toy_tasks

MODEL = toy_model()
TIMEOUT = 60.0  # of a busy machine

assert len(TOKENIZER) <= VOCAB and set(TURNS.stop_ids) <= set(STOPS), "the servers' toy is another one"


@contextmanager
def connected(*servers, loaded=True, timeout=TIMEOUT, **options):
    policy = ServerPolicy(
        [server.url for server in servers], toy_description(), token=TOKEN, timeout_s=timeout, **options
    )
    try:
        if loaded:
            policy.load_weights(MODEL.named_parameters(), 1)
        yield policy
    finally:
        policy.close()


def requests(count=20, seed=0, limit=12):
    rng = np.random.default_rng(seed)
    return [
        Request(key, rng.integers(4, VOCAB, size=rng.integers(1, 20)).tolist(), True, 100 + key, limit)
        for key in range(count)
    ]


def counted(server, name):
    """A figure of a server's metrics."""
    text = httpx.get(f"{server.url}/metrics", headers=HEADERS, timeout=TIMEOUT).text
    return float(re.search(rf"^sibling_policy_{name} (\S+)$", text, re.MULTILINE)[1])


def equal(found, expected):
    assert [g.ids for g in found] == [g.ids for g in expected]
    assert [g.finish for g in found] == [g.finish for g in expected]
    for one, other in zip(found, expected, strict=True):
        assert one.logps == pytest.approx(other.logps, abs=1e-5)


def play(policy, disturb=None, *, mode="free", tasks=4):
    """Groups of a toy rollout; `disturb(tokens)` is called as it goes on."""
    return rollout(
        policy,
        Sampling(),
        ToyEnv,
        toy_tasks(tasks),
        group_size=4,
        prompts=build(response=8),
        max_parallel=8,
        seed=0,
        options=RolloutOptions(mode),
        on_progress=disturb and (lambda done, tokens: disturb(tokens)),
    )


def sampled(groups):
    return [(s.prompt_ids, s.response_ids, s.action) for group in groups for tr in group for s in tr.steps]


def logps(groups):
    return [logp for group in groups for tr in group for s in tr.steps for logp in s.logp_sampled]


def same_trajectories(found, expected):
    assert sampled(found) == sampled(expected)
    assert logps(found) == pytest.approx(logps(expected), abs=1e-5)


@pytest.fixture(scope="module")
def undisturbed():
    return play(local_policy(MODEL))


def test_servers_answer_as_the_policy_in_process(server, victim):
    local = local_policy(MODEL)
    before = [counted(one, "requests_total") for one in (server, victim)]
    held = [counted(one, "conversations") for one in (server, victim)]
    with connected(server, victim) as policy:
        asked = requests(40)
        equal(policy.generate(asked, Sampling()), local.generate(asked, Sampling()))
        more = [Request(r.key, [5, 6], False, r.key, 9, 3 if len(r.ids) > 2 else None) for r in asked]
        expected = local.generate(more, Sampling())
        policy.start(more[:25], Sampling())
        found = dict(policy.advance())
        policy.start(more[25:], Sampling())
        until = time.monotonic() + TIMEOUT
        while len(found) < len(more) and time.monotonic() < until:
            found.update(policy.advance())
        equal([found[r.key] for r in more], expected)
        for one, was in zip((server, victim), held, strict=True):
            assert counted(one, "conversations") == was + 20
    taken = [counted(one, "requests_total") - was for one, was in zip((server, victim), before, strict=True)]
    assert taken == [40.0, 40.0], "each has half of the conversations, and they stay where they are"
    assert counted(server, "conversations") == held[0], "a client that closes leaves nothing behind"


@pytest.mark.parametrize("mode", ["free", "deterministic"])
def test_a_rollout_on_servers_is_the_rollout_in_process(server, victim, mode, undisturbed):
    with connected(server, victim) as policy:
        same_trajectories(play(policy, mode=mode), undisturbed)


def test_signals_arrive(server):
    local = local_policy(MODEL)
    asked, sampling = requests(3), Sampling(0.7, top=4)
    with connected(server) as policy:
        pairs = zip(policy.generate(asked, sampling), local.generate(asked, sampling), strict=True)
        for found, expected in pairs:
            assert np.asarray(found.signals) == pytest.approx(np.asarray(expected.signals), abs=1e-4)


def test_a_server_that_dies_changes_no_trajectory_and_comes_back_with_the_next_weights(
    server, victim, undisturbed
):
    with connected(server, victim) as policy:
        killed = []

        def kill(tokens):
            if tokens > 100 and not killed:
                killed.append(victim.kill())

        with pytest.warns(UserWarning, match=f"{victim.url}.*Going on without it"):
            same_trajectories(play(policy, kill), undisturbed)
        assert killed
        victim.restart()
        before = counted(victim, "requests_total")
        same_trajectories(play(policy), undisturbed)
        assert counted(victim, "requests_total") == before == 0, "it has no weights"
        policy.load_weights(MODEL.named_parameters(), 2)
        same_trajectories(play(policy), undisturbed)
        assert counted(victim, "requests_total") > 0


@pytest.mark.slow
def test_a_server_that_was_restarted_in_between_is_not_used_without_weights(server, victim, undisturbed):
    with connected(server, victim) as policy, warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        play(policy)
        victim.kill()
        victim.restart()
        same_trajectories(play(policy), undisturbed)
        assert "no weights" in str(said[0].message)
        assert counted(victim, "sampled_tokens_total") == 0


def test_a_server_that_stands_still_is_given_up(server, victim, undisturbed):
    with connected(server, victim, timeout=3.0) as policy:
        stopped = []

        def stop(tokens):
            if tokens > 100 and not stopped:
                stopped.append(os.kill(victim.process.pid, signal.SIGSTOP))

        try:
            with pytest.warns(UserWarning, match="Going on without it"):
                same_trajectories(play(policy, stop), undisturbed)
        finally:
            victim.process.send_signal(signal.SIGCONT)


def test_without_any_server_the_run_ends_soon_and_says_why(victim):
    with connected(victim) as policy:
        policy.start(requests(limit=500), Sampling())
        victim.kill()
        began = time.monotonic()
        with pytest.raises(ServerError, match=f"no policy server is left: {victim.url}.*go on from the last"):
            while True:
                policy.advance()
        assert time.monotonic() - began < 20
        policy.release(0)
        with pytest.raises(ServerError, match="no policy server is left"):
            for key in range(1, 20):
                policy.release(key)
            policy.load_weights(MODEL.named_parameters(), 2)


def test_another_runs_weights_are_not_sampled_from(server):
    with connected(server) as first, connected(server) as second:
        assert second.generate(requests(1), Sampling())
        with pytest.raises(ServerError, match="has the weights of transfer"):
            first.generate(requests(1), Sampling())


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
