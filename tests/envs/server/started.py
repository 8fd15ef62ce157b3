"""Real server processes for the tests, and what can be wrong with a server."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from envs.alfworld import AlfworldEnv
from envs.alfworld.uploads import UploadedGames
from envs.base import Outcome
from envs.pools.pool import LocalPool
from envs.pools.processes import ProcessPool
from envs.server.app import SessionLimits
from envs.server.env_server import serve
from envs.wire.description import describe
from serving.address import Address

ROOT = Path(__file__).resolve().parents[3]
STEPS = 15
OPTIONS = {"max_steps": STEPS, "anchor": "state"}
ENVIRONMENT = describe("alfworld", OPTIONS)


class Server:
    """A server process; `restart` starts it again at the same address."""

    def __init__(self, arguments: Sequence[str] = (), port: int = 0, **variables: str) -> None:
        self._arguments, self._variables, self.port = list(arguments), variables, port
        self.process: subprocess.Popen[str] | None = None
        self.restart()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def restart(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "tests.envs.server.started", "--port", str(self.port)]
        self.process = subprocess.Popen(
            [*command, *self._arguments, *arguments],
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=os.environ | self._variables,
        )
        said = (
            self.process.stdout.readline()
        )  # "serving alfworld at http://127.0.0.1:PORT …", once it listens
        assert said.startswith("serving"), said
        self.port = int(said.split(":")[2].split()[0])

    def kill(self, sig: int = signal.SIGKILL) -> int:
        self.process.send_signal(sig)
        code = self.process.wait(60)
        self.process.stdout.close()
        return code


@contextmanager
def started(*arguments: str, **variables: str) -> Iterator[Server]:
    server = Server(arguments, **variables)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.kill()


class Slow(AlfworldEnv):
    """Takes its time."""

    def step(self, action: str) -> Outcome:
        time.sleep(0.3)
        return super().step(action)


class Liar(AlfworldEnv):
    """Tells the number of its process: another process plays another way."""

    def step(self, action: str) -> Outcome:
        outcome = super().step(action)
        object.__setattr__(outcome.observation, "text", f"{outcome.observation.text} {os.getpid()}")
        return outcome


KINDS = {"plain": AlfworldEnv, "slow": Slow, "liar": Liar}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--kind", choices=KINDS, default="plain")
    parser.add_argument("--max-steps", type=int, default=STEPS)
    parser.add_argument("--sessions", type=int, default=1000)
    parser.add_argument("--idle", type=float, default=600.0)
    parser.add_argument("--rate", type=float, default=1e9)
    parser.add_argument("--body", type=int, default=2**20)
    parser.add_argument("--drain", type=float, default=30.0)
    options = parser.parse_args()
    make = partial(KINDS[options.kind], max_steps=options.max_steps)
    serve(
        ProcessPool(make, options.workers) if options.workers else LocalPool(make),
        UploadedGames(),
        describe("alfworld", OPTIONS | {"max_steps": options.max_steps}),
        address=Address(port=options.port),
        limits=SessionLimits(options.sessions, options.idle, options.body, options.rate),
        token=os.environ.get("TOKEN"),
        drain_seconds=options.drain,
    )


if __name__ == "__main__":
    main()
