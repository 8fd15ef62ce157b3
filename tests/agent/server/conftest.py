"""Two servers for all tests of this folder; a `victim` that was killed is started again for the next test."""

import pytest

from tests.agent.server.started import TOKEN, Server


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
