"""Two servers for all tests of this folder; a `victim` that was killed is started again for the next test."""

import httpx
import pytest

from tests.agent.server.on_servers import TIMEOUT, connected
from tests.agent.server.started import HEADERS, TOKEN, Server


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """Of transfers by file."""
    return tmp_path_factory.mktemp("transfers")


def _session(folder):
    server = Server(["--folder", str(folder)], TOKEN=TOKEN)
    yield server
    if server.process.poll() is None:
        server.kill()


@pytest.fixture(scope="session")
def server(folder):
    yield from _session(folder)


@pytest.fixture(scope="session")
def _victim(folder):
    yield from _session(folder)


@pytest.fixture
def victim(_victim):
    if _victim.process.poll() is not None:
        _victim.restart()
    return _victim


@pytest.fixture
def client(server):
    with httpx.Client(base_url=server.url, headers=HEADERS, timeout=TIMEOUT) as one:
        yield one


@pytest.fixture
def labelled(server):
    """A client of the server, which has weights; `label` is theirs."""
    with connected(server), httpx.Client(base_url=server.url, headers=HEADERS, timeout=TIMEOUT) as one:
        one.label = one.get("/v1/weights").json()["label"]
        yield one
