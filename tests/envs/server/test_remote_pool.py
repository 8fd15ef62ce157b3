"""Trajectories on real servers equal those in process, whatever happens to the servers."""

from __future__ import annotations

import json
import os
import random
import socket
import threading
import time
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import psutil
import pytest

from envs.alfworld import AlfworldEnv
from envs.base import EnvError
from envs.pools.pool import LocalPool
from envs.pools.remote import RemotePool
from envs.wire.description import describe
from tests.envs.pools.walks import play
from tests.envs.server.started import ENVIRONMENT, OPTIONS, STEPS, Server, started
from tests.envs.small_games import kitchen, porch

GAMES = [kitchen(), porch()]


@pytest.fixture(scope="module")
def server():
    with started() as one:
        yield one


@pytest.fixture(scope="module")
def undisturbed():
    return play(LocalPool(partial(AlfworldEnv, max_steps=STEPS)), GAMES, members=4)


def remote(*urls):
    """A pool that is not impatient with a busy machine."""
    return RemotePool(urls, ENVIRONMENT, timeout=60.0)


def sessions(url):
    return httpx.get(f"{url}/readyz").json()["sessions"]


def test_a_server_plays_as_the_engine_does(server, undisturbed):
    with remote(server.url) as pool:
        assert play(pool, GAMES, members=4) == undisturbed
        assert play(pool, GAMES, members=4, parallel=3) == undisturbed


def test_two_servers_share_the_work(server, undisturbed):
    with started("--workers", "1") as other, remote(server.url, other.url) as pool:
        assert play(pool, GAMES, members=4) == undisturbed
        for url in (server.url, other.url):
            text = httpx.get(f"{url}/metrics").text
            assert "sibling_env_steps_total 0.0" not in text


def test_a_fork_goes_its_own_way(server):
    with remote(server.url) as pool:
        pool.open(1, kitchen(), 0)
        pool.ready(30.0)
        pool.step(1, "go to drawer 1")
        there = pool.ready(30.0)[0]
        pool.fork(2, 1)
        pool.step(1, "go to fridge 1")
        replies = {}
        while len(replies) < 2:
            replies |= {reply.key: reply for reply in pool.ready(30.0)}
        assert replies[2].observation == there.observation and replies[2].instruction == kitchen().goal
        pool.step(2, "open drawer 1")
        assert "mug 1" in pool.ready(30.0)[0].observation.text


def test_a_server_killed_in_the_middle_is_replaced_by_the_other(server, undisturbed):
    with started() as victim, remote(victim.url, server.url) as pool:
        assert play(pool, GAMES, members=4, disturb=lambda n: n == 21 and victim.kill()) == undisturbed
        assert pool.restarts >= 1


def test_a_server_killed_and_started_again_goes_on(undisturbed):
    with started() as victim, remote(victim.url) as pool:

        def restart(count):
            if count == 30:
                victim.kill()
                victim.restart()

        assert play(pool, GAMES, members=4, disturb=restart) == undisturbed


def test_a_drained_server_ends_when_its_trajectories_do(server, undisturbed):
    with started() as leaving, remote(leaving.url, server.url) as pool:
        result = play(
            pool, GAMES, members=4, parallel=4, disturb=lambda n: n == 9 and os.kill(leaving.process.pid, 15)
        )
        assert result == undisturbed
        pool.close()
        assert leaving.process.wait(60) == 0


def test_a_slow_server_is_waited_for_and_nothing_is_played_twice(undisturbed):
    with started("--kind", "slow") as slow, RemotePool([slow.url], ENVIRONMENT, timeout=0.5) as pool:
        assert play(pool, GAMES[:1], members=2, steps=4) == [
            replies[:5]
            for replies in play(LocalPool(partial(AlfworldEnv, max_steps=STEPS)), GAMES[:1], members=2)
        ]
        text = httpx.get(f"{slow.url}/metrics", timeout=30).text
        assert "sibling_env_repeated_requests_total 0.0" not in text, "the client did send requests again"
        assert "sibling_env_steps_total 8.0" in text


def test_a_client_that_disappears_leaves_nothing_behind():
    with started("--idle", "1") as server:
        pool = remote(server.url)
        for key in range(3):
            pool.open(key, kitchen(), key)
        got = 0
        while got < 3:
            got += len(pool.ready(30.0))
        assert sessions(server.url) == 3
        until = time.monotonic() + 60
        while sessions(server.url) and time.monotonic() < until:
            time.sleep(0.2)
        assert sessions(server.url) == 0
        pool.step(0, "look")  # it was only thinking
        assert pool.ready(30.0)[0].outcome is not None
        pool.close()


def test_a_full_server_is_waited_for(undisturbed):
    with started("--sessions", "3") as small, remote(small.url) as pool:
        assert play(pool, GAMES, members=4) == undisturbed


def test_a_request_that_is_too_large_fails_alone(server, undisturbed):
    with remote(server.url) as pool:
        pool.open(1000, kitchen(), 0)
        pool.ready(60.0)
        pool.step(1000, "look " * 300_000)
        failure = pool.ready(60.0)[0].failure
        assert failure.reason == "refused" and "too large" in failure.message
        pool.release(1000)
        assert play(pool, GAMES, members=4) == undisturbed


def test_another_version_is_refused_at_the_start(server):
    other = describe("alfworld", OPTIONS | {"max_steps": 30})
    with pytest.raises(EnvError, match="option max_steps is 15 there, 30 here"):
        RemotePool([server.url], other)


def test_a_server_that_comes_back_as_another_is_refused():
    with started() as victim, remote(victim.url) as pool:

        def restart(count):
            if count == 10:
                victim.kill()
                victim.restart("--max-steps", "9")

        with pytest.raises(EnvError, match="option max_steps is 9 there, 15 here"):
            play(pool, GAMES, members=2, disturb=restart)


def test_a_server_that_plays_another_way_is_found_out():
    with started("--kind", "liar") as liar, remote(liar.url) as pool:
        pool.open(1, kitchen(), 0)
        pool.ready(30.0)
        pool.step(1, "look")
        pool.ready(30.0)
        liar.kill()
        liar.restart()
        pool.step(1, "look")
        assert pool.ready(60.0)[0].failure.reason == "diverged"


def test_without_any_server_the_pool_says_so():
    with socket.socket() as taken:  # bound, but nobody listens
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(EnvError, match="no environment server can be reached: .*refused"):
            RemotePool([url], ENVIRONMENT, patience=0.5)


def test_a_half_open_connection_is_given_up(server, undisturbed):
    with socket.create_server(("127.0.0.1", 0)) as silent:  # the kernel accepts, and nobody ever answers
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(EnvError, match="no environment server can be reached: .*ReadTimeout"):
            RemotePool([url], ENVIRONMENT, timeout=0.2, patience=4.0)
        with RemotePool([url, server.url], ENVIRONMENT, timeout=5.0) as pool:
            assert play(pool, GAMES, members=4) == undisturbed


def test_a_token_is_asked_for():
    with started(TOKEN="0123456789abcdef-right") as guarded:
        with pytest.raises(EnvError, match="does not take the token"):
            RemotePool([guarded.url], ENVIRONMENT, token="0123456789abcdef-wrong")
        with RemotePool([guarded.url], ENVIRONMENT, token="0123456789abcdef-right") as pool:
            pool.open(1, kitchen(), 0)
            assert pool.ready(30.0)[0].failure is None


HELLO = {"environment": ENVIRONMENT.model_dump(), "batch": 10, "body": 10**6}
STEP = {"session": "x", "position": 0, "instruction": "", "checks": []}


@pytest.mark.parametrize(
    ("hello", "answer"),
    [
        ("<html>it works!</html>", None),
        ({"status": "ok"}, None),
        (HELLO, "\x00\xff"),
        (HELLO, {"played": "all"}),
        (HELLO, {"played": []}),
        (HELLO, {"played": [STEP | {"observation": {"text": 1, "anchor": "", "admissible": []}}]}),
        (HELLO, {"played": [STEP]}),
    ],
)
def test_garbage_is_refused(hello, answer):
    class Garbage(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def say(self, what):
            body = (what if isinstance(what, str) else json.dumps(what)).encode("latin-1")
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self):
            self.say(hello)

        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            self.say(answer)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Garbage)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        url = f"http://127.0.0.1:{server.server_port}"
        with pytest.raises(EnvError, match="answers"), remote(url) as pool:
            pool.open(1, kitchen(), 0)
            pool.ready(30.0)
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("urls", [[], ["http://a", "http://a"], ["127.0.0.1:80"], ["http://a:b"]])
def test_addresses_that_are_none(urls):
    with pytest.raises(EnvError, match="address"):
        RemotePool(urls, ENVIRONMENT)


@pytest.mark.slow
def test_twenty_random_moments():
    """Servers and their workers are killed; every trajectory is as it would have been (pauses with `-s`)."""
    expected = play(LocalPool(partial(AlfworldEnv, max_steps=STEPS)), GAMES, members=16)
    rng = random.Random(5)
    moments = set(rng.sample(range(1, sum(map(len, expected))), 20))
    longest, last = 0.0, time.monotonic()
    restarts: dict[Server, threading.Thread] = {}

    def disturb(count):
        nonlocal longest, last
        longest = max(longest, time.monotonic() - last)
        if count in moments:
            victim = rng.choice(servers)
            if victim in restarts:
                restarts.pop(victim).join()
            children = psutil.Process(victim.process.pid).children(recursive=True)
            if rng.random() < 0.5:
                rng.choice(children).kill()
            else:
                victim.kill()
                restarts[victim] = threading.Thread(target=victim.restart)
                restarts[victim].start()
        last = time.monotonic()

    with started("--workers", "1") as one, started("--workers", "1") as two:
        servers = [one, two]
        with remote(one.url, two.url) as pool:
            assert play(pool, GAMES, members=16, disturb=disturb, patience=600) == expected
        for thread in restarts.values():
            thread.join()
    print(f"the longest time without a reply: {longest:.1f} s")
