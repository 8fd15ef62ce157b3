"""Real policy servers in processes of their own."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch

from agent.policy_torch import TorchPolicy
from agent.server.app import Limits
from agent.server.serve import Served, serve
from agent.server.wire import describe
from envs.server.serve import Address
from tests.toy import tiny_model

ROOT = Path(__file__).resolve().parents[3]
VOCAB, STOP, WINDOW = 50, 3, 200
TOY_STD = 0.2


def toy_model(seed: int = 0, vocab: int = VOCAB):
    return tiny_model(vocab, std=TOY_STD, seed=seed)


class Server:
    """A server process; `restart` starts it again at the same address."""

    def __init__(self, arguments: Sequence[str] = (), port: int = 0, **variables: str) -> None:
        self._arguments, self._variables, self.port = list(arguments), variables, port
        self.process: subprocess.Popen[str] | None = None
        self.restart()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def restart(self) -> None:
        command = [sys.executable, "-m", "tests.agent.server.started", "--port", str(self.port)]
        self.process = subprocess.Popen(
            [*command, *self._arguments],
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=os.environ | {"OMP_NUM_THREADS": "1"} | self._variables,
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
def started(*arguments: str, **variables: str) -> Iterator[Server]:
    server = Server(arguments, **variables)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.kill()


class SlowPolicy(TorchPolicy):
    """Takes its time for every round."""

    def advance(self):
        time.sleep(float(os.environ["SLOW"]))
        return super().advance()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int)
    parser.add_argument("--vocab", type=int, default=VOCAB)
    parser.add_argument("--stop", type=int, nargs="+", default=[STOP])
    parser.add_argument("--window", type=int, default=WINDOW)
    parser.add_argument("--seed", type=int, default=1234, help="Of its own weights, which nobody samples from.")
    parser.add_argument("--std", type=float, default=TOY_STD)
    parser.add_argument("--parallel", type=int, default=16)
    parser.add_argument("--idle", type=float, default=600.0)
    parser.add_argument("--conversations", type=int, default=10_000)
    parser.add_argument("--rate", type=float, default=1e9)
    parser.add_argument("--body", type=int, default=2**20)
    parser.add_argument("--folder", type=Path, default=Path("/dev/shm"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    model = tiny_model(options.vocab, std=options.std, seed=options.seed)
    kind = SlowPolicy if "SLOW" in os.environ else TorchPolicy
    policy = kind(model, options.stop, window=options.window, max_parallel=options.parallel)
    serve(
        Served(policy, describe(model, options.stop, options.window), torch.device("cpu"), "a toy"),
        address=Address(port=options.port),
        limits=Limits(options.conversations, options.idle, options.body, options.rate),
        token=os.environ.get("TOKEN"),
        folder=options.folder,
    )


if __name__ == "__main__":
    main()
