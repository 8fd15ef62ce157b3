"""ProVer's judge, over real HTTP: what it is shown, what its answers become, what its failures say."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from commands.build.declared import credit_pipeline
from commands.build.services import credit_services
from configs.load import load
from configs.text import ConfigError
from credit.parts.continuations import Candidate, candidates
from credit.table import StepTable
from rl.probes.prover_judge import ChatJudge, JudgeError


class Server:
    """A chat server on loopback that gives one answer and remembers what it was asked."""

    def __init__(self):
        self.status, self.answer, self.requests = 200, "steps 1-2", []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.requests.append((self.path, self.headers.get("Authorization"), body))
                reply = json.dumps({"choices": [{"message": {"content": outer.answer}}]}).encode()
                self.send_response(outer.status)
                self.end_headers()
                self.wfile.write(reply)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def server():
    server = Server()
    yield server
    server.server.shutdown()
    server.server.server_close()


@pytest.fixture
def table():
    """One group: a success of five steps (trajectory 0) and a failure of three (trajectory 1)."""
    t = [0, 1, 2, 3, 4, 0, 1, 2]
    trajectory = [0] * 5 + [1] * 3
    success = np.array([True] * 5 + [False] * 3)
    return StepTable(
        group=[0] * 8,
        trajectory=trajectory,
        t=t,
        reward=[0.0] * 8,
        outcome=np.where(success, 10.0, 0.0),
        success=success,
        anchor=[f"place {k}{n}" for k, n in zip(trajectory, t, strict=True)],
        action=[f"act {k}{n}" for k, n in zip(trajectory, t, strict=True)],
    ).canonical()[0]


def proposed(table, judge):
    return candidates(
        table,
        proposer="judge",
        min_successes=1,
        max_successes=3,
        max_steps=3,
        rng=lambda purpose: np.random.default_rng(0),
        judge=judge,
    )


def test_the_judge_reads_the_success_first_and_its_stretch_becomes_the_candidate(server, table):
    judge = ChatJudge(server.url, "small", key="secret", max_steps=3)
    assert proposed(table, judge) == [Candidate(0, 1, 3)]  # steps 1 and 2, the end exclusive
    [(path, authorization, body)] = server.requests
    assert (path, authorization) == ("/v1/chat/completions", "Bearer secret")
    assert (body["model"], body["temperature"]) == ("small", 0)
    question = body["messages"][0]["content"]
    assert "at most 3 steps" in question
    assert question.index("step 4: place 04 → act 04") < question.index("step 0: place 10 → act 10")


@pytest.mark.parametrize(
    "answer",
    ["I cannot say.", "steps 3-4", "steps 0-3", "steps 2-1"],
    ids=["no numbers", "reaches the last step", "longer than asked for", "backwards"],
)
def test_an_answer_that_is_no_such_stretch_is_no_proposal(server, table, answer):
    server.answer = answer
    assert proposed(table, ChatJudge(server.url, "small", max_steps=3)) == []
    assert len(server.requests) == 1


def test_a_server_that_fails_is_an_error_that_names_it(server, table):
    server.status = 500
    with pytest.raises(JudgeError, match=r"the judge at .*/v1/chat/completions \(model 'small'\).*judge_url"):
        proposed(table, ChatJudge(server.url, "small"))


def test_a_judge_is_asked_for_at_the_door(server):
    wanted = ["credit=prover", "credit.prover.proposer=judge"]
    loaded = load("alfworld_cpu", wanted)
    with pytest.raises(ConfigError, match=r"credit\.prover\.proposer=judge needs .* probes\.judge_url"):
        credit_services(loaded.config, credit_pipeline(loaded))
    loaded = load("alfworld_cpu", [*wanted, f"probes.judge_url={server.url}"])
    assert isinstance(credit_services(loaded.config, credit_pipeline(loaded))["judge"], ChatJudge)
