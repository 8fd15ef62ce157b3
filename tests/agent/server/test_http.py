"""The server as anybody sees it over HTTP: what comes twice, what is lost, what it does not put up with."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from concurrent.futures import Future
from pathlib import Path

import httpx
import pytest
import torch
from transformers import AutoModelForCausalLM

from agent.policies.server_policy import ServerPolicy
from agent.policies.torch_policy import TorchPolicy
from agent.policy import Sampling
from agent.server.clients import Client, Waiting
from agent.server.decoder import Decoder, Unknown
from agent.server.decoder_metrics import DecoderMetrics
from agent.server.weight_state import NotReady, Stopping, Weights
from agent.types import Generation, Request
from agent.wire.messages import Ask, Collect, Release, Start, describe
from tests.agent.server.on_servers import TIMEOUT, connected, counted
from tests.agent.server.requests_of import ASK, collect, start
from tests.agent.server.started import TOKEN, VOCAB, local_policy, started, toy_description, toy_model
from tests.serving import ROOT


def test_a_request_that_is_sent_twice_is_answered_once(labelled, server):
    before = counted(server, "repeated_requests_total")
    first = start(labelled, ASK, ASK | {"number": 1, "conversation": 1, "seed": 9}, name="twice").json()
    assert (
        start(labelled, ASK, ASK | {"number": 1, "conversation": 1, "seed": 9}, name="twice").json() == first
    )
    assert counted(server, "repeated_requests_total") - before == 2
    found = collect(labelled, "twice", first["record"], enough=2)
    assert sorted(r["number"] for r in found) == [0, 1] and all(r["version"] == 1 for r in found)
    assert [r["delivery"] for r in found] == [1, 2]


def test_an_answer_that_is_lost_is_given_again_until_it_is_acknowledged(labelled):
    record = start(labelled, ASK, ASK | {"number": 1, "conversation": 1}, name="lost").json()["record"]
    found = collect(labelled, "lost", record, enough=2)
    assert len(found) == 2
    assert collect(labelled, "lost", record) == found
    assert collect(labelled, "lost", record, ack=1) == found[1:]
    assert collect(labelled, "lost", record, ack=2) == []


def test_a_client_that_is_not_known_is_told(labelled):
    for name, record in (("nobody", "x"), ("known", "x")):
        start(labelled, name="known")
        response = labelled.post("/v1/collect", json={"client": name, "record": record})
        assert response.status_code == 404 and "not known here" in response.json()["detail"]


def test_faults_are_the_requests_own(labelled):
    bad = [
        ASK | {"number": 1, "conversation": 1, "fresh": False},
        ASK | {"number": 2, "conversation": 2, "ids": [VOCAB]},
        ASK | {"number": 3, "conversation": 3, "ids": []},
        ASK | {"number": 4, "conversation": 4, "ids": [5] * 2000},
    ]
    record = start(labelled, *bad, ASK | {"number": 5}, name="faults").json()["record"]
    found = {r["number"]: r for r in collect(labelled, "faults", record, enough=5)}
    assert [found[n]["fault"]["reason"] for n in (1, 2, 3, 4)] == ["unknown", "refused", "refused", "refused"]
    assert found[5]["fault"] is None and found[5]["ids"]
    again = start(labelled, ASK | {"number": 6, "conversation": 3}, name="faults")
    assert again.status_code == 200
    assert collect(labelled, "faults", record, ack=5)[0]["fault"] is None, (
        "a conversation survives a bad request"
    )


def test_a_conversation_has_one_response_at_a_time(labelled):
    long = ASK | {"max_new_tokens": 1000, "seed": 3}
    record = start(labelled, long, ASK | {"number": 1}, name="busy").json()["record"]
    found = {r["number"]: r for r in collect(labelled, "busy", record, enough=2)}
    assert found[1]["fault"]["message"] == "its conversation has a response in flight"


def test_samplings_take_turns(labelled):
    long = ASK | {"max_new_tokens": 300}
    record = start(labelled, long, name="hot").json()["record"]
    other = start(labelled, ASK, name="cold", temperature=0.0).json()["record"]
    cold = collect(labelled, "cold", other, wait=30.0)
    assert cold[0]["logps"] == [0.0] * len(cold[0]["ids"])
    assert collect(labelled, "hot", record)[0]["ids"]


def test_the_schema_describes_it(labelled):
    schema = labelled.get("/openapi.json").json()
    paths = {"/v1/start", "/v1/collect", "/v1/release", "/v1/policy", "/v1/weights", "/healthz", "/readyz"}
    weights = {f"/v1/weights/{what}" for what in ("begin", "bucket", "file", "finish", "abort")}
    assert paths | weights | {"/metrics"} <= set(schema["paths"])
    assert (
        "application/octet-stream" in schema["paths"]["/v1/weights/bucket"]["post"]["requestBody"]["content"]
    )
    assert labelled.get("/healthz").json() == {"status": "ok"}
    assert labelled.get("/readyz").json() == {"ready": True, "version": 1, "fault": ""}


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def engine(monkeypatch):
    """An engine in this process, with weights, room for three conversations, and a clock to turn."""
    metrics, clock = DecoderMetrics(), Clock()
    weights = Weights(toy_description(), folder=Path("/nowhere"), device=torch.device("cpu"), metrics=metrics)
    monkeypatch.setattr(weights, "check", lambda label: None)
    engine = Decoder(
        local_policy(toy_model()),
        VOCAB,
        weights,
        conversations=3,
        idle_seconds=60.0,
        metrics=metrics,
        clock=clock,
    )
    engine.start()
    yield engine, clock
    engine.close()


def taken(engine, *asks, name="c"):
    message = Start(client=name, label="x", temperature=1.0, ask=[Ask(**ask) for ask in asks])
    return engine.take(message).result(TIMEOUT).record


def test_a_client_that_disappears_leaves_nothing_behind(engine):
    engine, clock = engine
    record = taken(engine, ASK, ASK | {"number": 1, "conversation": 1, "max_new_tokens": 400})
    other = taken(engine, ASK, name="other")
    policy = engine._policy
    engine.collect(Collect(client="c", record=record, enough=2)).result(TIMEOUT)
    assert len(policy._rows) == 3
    clock.now = 50.0
    engine.collect(Collect(client="other", record=other, ack=1, wait=0.0)).result(TIMEOUT)
    clock.now = 70.0
    until = time.monotonic() + TIMEOUT
    while len(policy._rows) > 1 and time.monotonic() < until:
        time.sleep(0.05)
    assert len(policy._rows) == 1, "the other client has just been heard of"
    with pytest.raises(Unknown, match="silent for too long"):
        engine.collect(Collect(client="c", record=record)).result(TIMEOUT)
    assert taken(engine, ASK) != record, "it may begin again"


def test_conversations_are_limited_and_released(engine):
    engine, _ = engine
    taken(engine, *(ASK | {"number": n, "conversation": n} for n in range(3)))
    with pytest.raises(Stopping, match="3 conversations are held, this server has room for 3"):
        taken(engine, ASK, name="late")
    engine.release(Release(client="c", conversations=[0, 1, 99])).result(TIMEOUT)
    taken(engine, ASK, name="late")


def test_who_waits_is_told_when_the_server_ends(engine):
    engine, _ = engine
    record = taken(engine, ASK | {"max_new_tokens": 1400, "seed": 5})
    waiting = engine.collect(Collect(client="c", record=record, enough=9, wait=30.0))
    engine.draining = True
    with pytest.raises(NotReady, match="takes nothing new"):
        taken(engine, ASK, name="late")
    engine.close()
    if not waiting.cancelled() and waiting.exception() is not None:
        assert isinstance(waiting.exception(), Stopping)
    with pytest.raises(Stopping, match="is stopping"):
        taken(engine, ASK, name="late")


def test_a_question_is_answered_once_enough_or_all_have_ended_or_in_time():
    def asked(due, results, enough, until):
        labelled, future = Client(0.0), Future()
        labelled.due = dict.fromkeys(range(due), 0)
        for number in range(results):
            labelled.deliver(number, 1, Generation([1], [-1.0], "stop"))
        labelled.ask(Waiting(future, enough, until))
        labelled.answer(5.0)
        return [r.number for r in future.result(0).responses] if future.done() else None

    assert asked(3, 2, 2, 9.0) == [0, 1]
    assert asked(3, 1, 2, 9.0) is None
    assert asked(0, 1, 2, 9.0) == [0]
    assert asked(3, 1, 2, 4.0) == [0]
    assert asked(3, 0, 2, 4.0) == []


@pytest.mark.slow
def test_a_real_client_that_disappears():
    with started("--idle", "1", SLOW="0.05") as server:
        policy = ServerPolicy([server.url], toy_description(), timeout_s=TIMEOUT)
        policy.load_weights(toy_model().named_parameters(), 1)
        asked = [Request(key, [5, 6], True, key, 500) for key in range(8)]
        policy.start(asked, Sampling())
        for connection in policy._servers.connections:  # as if the process had been killed
            connection._over = True
            connection._client = "another"
            with connection._changed:
                connection._changed.notify_all()
        until = time.monotonic() + TIMEOUT
        while (held := counted(server, "conversations")) and time.monotonic() < until:
            time.sleep(0.2)
        assert held == 0 and counted(server, "responses_in_flight") == 0


@pytest.mark.slow
def test_a_signal_lets_responses_end():
    with started(SLOW="0.02", TOKEN=TOKEN) as server, connected(server) as policy:
        policy.start([Request(0, [5, 6], True, 3, 200)], Sampling())
        wait = time.monotonic() + TIMEOUT
        while not counted(server, "responses_in_flight") and time.monotonic() < wait:
            time.sleep(0.01)
        server.process.send_signal(signal.SIGTERM)
        found = []
        while not found and time.monotonic() < wait:
            found = policy.advance()
        assert found[0][1].ids
        assert server.process.wait(60) == 0


@pytest.mark.slow
def test_the_command_serves_an_experiments_policy(tmp_path):
    command = [sys.executable, "run.py", "serve-policy", "alfworld_cpu", "--port", "0", "threads=1"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        said = process.stdout.readline()
        assert said.startswith("serving the policy of alfworld_cpu (torch) at http://127.0.0.1:"), said
        url = said.split(" at ")[1].split()[0]
        model = AutoModelForCausalLM.from_pretrained(ROOT / "agent/assets/alfworld-tiny")
        stops = httpx.get(f"{url}/v1/policy", timeout=TIMEOUT).json()["model"]["stop_ids"]
        policy = ServerPolicy([url], describe(model, stops, 1536), timeout_s=TIMEOUT)
        policy.load_weights(model.named_parameters(), 1)
        asked = [Request(key, [5, 6, 7 + key], True, key, 20) for key in range(8)]
        local = TorchPolicy(model, stops, window=1536)
        for one, other in zip(
            policy.generate(asked, Sampling()), local.generate(asked, Sampling()), strict=True
        ):
            assert one.ids == other.ids and one.logps == pytest.approx(other.logps, abs=1e-5)
        policy.close()
        process.terminate()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.stdout.close()
