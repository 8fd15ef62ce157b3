"""Responses from real servers equal those of the policy in process, whatever happens to the servers."""

from __future__ import annotations

import os
import signal
import time
import warnings

import numpy as np
import pytest

from agent.policies.server_policy import ServerError
from agent.policy import Sampling
from agent.rollout.options import RolloutOptions
from agent.rollout.rollout import rollout
from agent.types import Request
from tests.agent.server.on_servers import MODEL, TIMEOUT, connected, counted, equal, logps, requests
from tests.agent.server.started import (
    STOPS,
    VOCAB,
    local_policy,
)
from tests.agent.test_agent_rollout import TOKENIZER, TURNS, build
from tests.toy import ToyEnv, toy_tasks

assert len(TOKENIZER) <= VOCAB and set(TURNS.stop_ids) <= set(STOPS), "the servers' toy is another one"


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
