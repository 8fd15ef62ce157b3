"""A policy on servers, and what its tests compare."""

from __future__ import annotations

import re
from contextlib import contextmanager

import httpx
import numpy as np
import pytest

from agent.policies.server_policy import ServerPolicy
from agent.types import Request
from tests.agent.server.started import (
    HEADERS,
    TOKEN,
    VOCAB,
    toy_description,
    toy_model,
)

MODEL = toy_model()


TIMEOUT = 60.0  # of a busy machine


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


def logps(groups):
    return [logp for group in groups for tr in group for s in tr.steps for logp in s.logp_sampled]


def counted(server, name):
    """A figure of a server's metrics."""
    text = httpx.get(f"{server.url}/metrics", headers=HEADERS, timeout=TIMEOUT).text
    return float(re.search(rf"^sibling_policy_{name} (\S+)$", text, re.MULTILINE)[1])


def equal(found, expected):
    assert [g.ids for g in found] == [g.ids for g in expected]
    assert [g.finish for g in found] == [g.finish for g in expected]
    for one, other in zip(found, expected, strict=True):
        assert one.logps == pytest.approx(other.logps, abs=1e-5)
