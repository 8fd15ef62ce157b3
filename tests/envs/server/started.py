"""Real server processes for the tests, and what can be wrong with a server."""

from __future__ import annotations

import argparse
import os
import time
from contextlib import AbstractContextManager
from functools import partial

from envs.alfworld import AlfworldEnv
from envs.alfworld.uploads import UploadedGames
from envs.base import Outcome
from envs.pools.pool import LocalPool
from envs.pools.processes import ProcessPool
from envs.server.app import SessionLimits
from envs.server.env_server import serve
from envs.wire.description import describe
from serving.address import Address
from tests.serving import ServerProcess, running

STEPS = 15
OPTIONS = {"max_steps": STEPS, "anchor": "state"}
ENVIRONMENT = describe("alfworld", OPTIONS)


class Server(ServerProcess):
    """This module's `main` in a process of its own."""

    module = "tests.envs.server.started"


def started(*arguments: str, **variables: str) -> AbstractContextManager[ServerProcess]:
    """A server for the time of a block."""
    return running(Server(arguments, **variables))


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
