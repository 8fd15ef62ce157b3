"""Real servers in processes of their own, for tests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


class ServerProcess:
    """A server process; `restart` starts it again at the same address.

    A subclass names the `module` that serves, and the environment `variables` that all its processes have.
    """

    module = ""
    variables: Mapping[str, str] = {}

    def __init__(self, arguments: Sequence[str] = (), port: int = 0, **variables: str) -> None:
        self._arguments, self._own, self.port = list(arguments), variables, port
        self.process: subprocess.Popen[str] | None = None
        self.restart()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def restart(self, *arguments: str) -> None:
        command = [sys.executable, "-m", self.module, "--port", str(self.port)]
        self.process = subprocess.Popen(
            [*command, *self._arguments, *arguments],
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, **self.variables, **self._own},
        )
        said = self.process.stdout.readline()  # "serving … at http://127.0.0.1:PORT …", once it listens
        assert said.startswith("serving"), said
        self.port = int(said.split("http://127.0.0.1:")[1].split()[0])

    def kill(self, sig: int = signal.SIGKILL) -> int:
        self.process.send_signal(sig)
        code = self.process.wait(60)
        self.process.stdout.close()
        return code


@contextmanager
def running(server: ServerProcess) -> Iterator[ServerProcess]:
    """Ends a server with the block, unless that has been done."""
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.kill()
