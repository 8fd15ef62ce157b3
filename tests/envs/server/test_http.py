"""The server as anybody sees it over HTTP: sessions, limits, and what it does not put up with."""

from __future__ import annotations

import subprocess
import sys
import time

import httpx
import psutil
import pytest

from envs.alfworld import AlfworldEnv
from envs.alfworld.uploads import UploadedGames
from envs.base import EnvError
from envs.wire.messages import HEADER
from envs.wire.task_book import ListedTasks, content, task_digest
from tests.envs.server.requests_of import GAME, UPLOAD, opening, play
from tests.envs.server.started import ENVIRONMENT, started
from tests.envs.small_games import kitchen, porch
from tests.serving import ROOT


def stepping(name, position, action="look"):
    return {"session": name, "position": position, "action": action}


def test_a_session_is_the_environment(client):
    env = AlfworldEnv(15)
    first = env.reset(GAME)
    (opened,) = play(client, open=[opening("a")])
    assert opened["observation"]["text"] == first.text
    assert tuple(opened["observation"]["admissible"]) == first.admissible
    assert (opened["position"], opened["instruction"], len(opened["checks"])) == (0, GAME.goal, 1)
    (stepped,) = play(client, step=[stepping("a", 1, "go to drawer 1")])
    outcome = env.step("go to drawer 1")
    assert stepped["outcome"]["observation"]["text"] == outcome.observation.text
    forked, other = play(
        client,
        fork=[{"session": "b", "source": "a", "position": 1}],
        step=[stepping("a", 2, "go to fridge 1")],
    )
    assert forked["outcome"] == stepped["outcome"], "a fork is done before its source moves on"
    assert other["position"] == 2
    assert play(client, close=["a", "b", "never"]) == []
    (gone,) = play(client, step=[stepping("a", 3)])
    assert gone["trouble"]["reason"] == "unknown_session"


def test_what_is_sent_twice_is_played_once(client):
    batch = {"open": [opening("twice")]}
    assert play(client, **batch) == play(client, **batch)
    step = {"step": [stepping("twice", 1, "go to drawer 1")]}
    once = play(client, **step)
    assert play(client, **step) == once
    both = play(client, step=[stepping("twice", 2, "open drawer 1")] * 2)
    assert both[0] == both[1] and both[0]["trouble"] is None
    for wrong in (stepping("twice", 2, "look"), stepping("twice", 1), stepping("twice", 4)):
        (answer,) = play(client, step=[wrong])
        assert answer["trouble"]["reason"] == "moved"
    (answer,) = play(client, open=[opening("twice")])
    assert answer["trouble"]["reason"] == "moved", "it is not where an opening would leave it"
    play(client, close=["twice"])


def test_a_replay_has_to_repeat(client):
    (opened,) = play(client, open=[opening("r", actions=["look", "go to drawer 1"])])
    checks = opened["checks"]
    assert len(checks) == 3 and opened["position"] == 2
    (same,) = play(client, open=[opening("s", actions=["look", "go to drawer 1"], checks=checks)])
    assert same["outcome"] == opened["outcome"]
    (other,) = play(client, open=[opening("t", actions=["look", "go to fridge 1"], checks=checks)])
    assert other["trouble"]["reason"] == "diverged"
    play(client, close=["r", "s", "t"])


def test_an_unknown_task_is_asked_for(client):
    other = {"id": "porch", "digest": task_digest(porch())}
    (answer,) = play(client, open=[opening("p", task=other)])
    assert answer["trouble"]["reason"] == "unknown_task"
    assert client.post("/v1/tasks", json={"games": [content(porch()).model_dump()]}).json() == {"stored": 1}
    (answer,) = play(client, open=[opening("p", task=other)])
    assert answer["trouble"] is None
    play(client, close=["p"])


def test_another_environment_is_told_apart(client):
    assert client.get("/v1/environment").json()["environment"] == ENVIRONMENT.model_dump()
    assert client.post("/v1/play", json={}, headers={HEADER: "other"}).status_code == 412
    assert client.post("/v1/play", json={}, headers={HEADER: ENVIRONMENT.fingerprint}).status_code == 200


def test_the_schema_describes_it(client):
    schema = client.get("/openapi.json").json()
    assert {"/v1/play", "/v1/tasks", "/v1/environment", "/healthz", "/readyz", "/metrics"} <= set(
        schema["paths"]
    )
    batch = schema["components"]["schemas"]["Batch"]["properties"]
    assert set(batch) == {"open", "fork", "step", "close"}
    assert client.get("/healthz").json() == {"status": "ok"}
    assert client.get("/readyz").json()["ready"] is True


def test_sessions_are_limited_and_drained(client):
    with started("--sessions", "2", "--drain", "60") as small, httpx.Client(base_url=small.url) as other:
        other.post("/v1/tasks", json=UPLOAD)
        answers = play(other, open=[opening("a"), opening("b"), opening("c")])
        assert [answer["trouble"] and answer["trouble"]["reason"] for answer in answers] == [
            None,
            None,
            "full",
        ]
        small.process.terminate()
        until = time.monotonic() + 30
        while other.get("/readyz").status_code == 200 and time.monotonic() < until:
            time.sleep(0.05)
        assert other.get("/readyz").status_code == 503 and other.get("/healthz").status_code == 200
        play(other, close=["a"])
        (answer,) = play(other, open=[opening("d")])
        assert answer["trouble"]["reason"] == "draining"
        (answer,) = play(other, step=[stepping("b", 1)])
        assert answer["trouble"] is None, "what is open goes on"
        play(other, close=["b"])
        assert small.process.wait(60) == 0


def test_a_listed_task_with_another_digest_is_other_data():
    book = ListedTasks([GAME])
    assert book.find(GAME.id, task_digest(GAME)) is GAME
    with pytest.raises(EnvError, match="other data"):
        book.find(GAME.id, task_digest(kitchen(goal="put a cold mug in cabinet")))
    with pytest.raises(EnvError, match="no task 'x'"):
        book.find("x", "")


def test_old_uploads_make_room():
    book = UploadedGames(kept=2)
    games = [kitchen(id=f"kitchen-{i}") for i in range(3)]
    book.add(content(game) for game in games)
    found = [book.find(game.id, task_digest(game)) for game in games]
    assert found[0] is None and [game.id for game in found[1:]] == ["kitchen-1", "kitchen-2"]
    assert found[1].digest == games[1].digest


def test_thousands_of_sessions_leave_no_threads(client, server):
    process = psutil.Process(server.process.pid)

    def wave(number):
        names = [f"w{number}-{i}" for i in range(200)]
        play(client, open=[opening(name) for name in names])
        play(client, close=names)

    wave(0)
    threads = process.num_threads()
    for number in range(1, 6):
        wave(number)
    assert process.num_threads() == threads
    assert client.get("/readyz").json()["sessions"] == 0


def test_the_command_serves_and_says_where(tmp_path):
    command = [
        sys.executable,
        "run.py",
        "serve",
        "alfworld",
        "--port",
        "0",
        "--workers",
        "0",
        "env.max_steps=15",
    ]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        said = process.stdout.readline()
        assert said.startswith("serving alfworld at http://127.0.0.1:")
        found = httpx.get(f"{said.split()[3]}/v1/environment", timeout=60).json()["environment"]
        assert found == ENVIRONMENT.model_dump()
        process.terminate()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.stdout.close()


def test_the_command_refuses_strange_options():
    command = [sys.executable, "run.py", "serve", "alfworld", "train.lr=1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2 and "only, got 'train.lr=1'" in done.stderr
