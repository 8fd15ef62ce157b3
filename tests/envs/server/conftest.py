"""Shared fixtures."""

from __future__ import annotations

import httpx
import pytest

from tests.envs.server.requests_of import UPLOAD
from tests.envs.server.started import started


@pytest.fixture(scope="module")
def server():
    with started() as one:
        yield one


@pytest.fixture
def client(server):
    with httpx.Client(base_url=server.url, timeout=60) as one:
        one.post("/v1/tasks", json=UPLOAD).raise_for_status()
        yield one
