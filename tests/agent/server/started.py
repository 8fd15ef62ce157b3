"""Real policy servers in processes of their own, and the toy model that they and the tests share."""

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

from agent.policies.torch_policy import TorchPolicy
from agent.server.app import ConversationLimits
from agent.server.policy_server import Served, serve
from agent.wire.messages import describe
from serving.address import Address
from tests.toy import tiny_model

ROOT = Path(__file__).resolve().parents[3]
VOCAB, STOPS, WINDOW, STD = 400, (1, 3), 1500, 0.1  # of the toy tokenizer and environment, with room
TOKEN = "0123456789abcdef-right"
HEADERS = {"Authorization": f"Bearer {TOKEN}"}


def toy_model(seed: int = 0, vocab: int = VOCAB, layers: int = 2):
    return tiny_model(vocab, std=STD, seed=seed, layers=layers)


def toy_description(model=None, stops: Sequence[int] = STOPS, window: int = WINDOW):
    return describe(model or toy_model(), stops, window)


def local_policy(model, max_parallel: int = 16) -> TorchPolicy:
    return TorchPolicy(model, STOPS, window=WINDOW, max_parallel=max_parallel)


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
    parser.add_argument("--stop", type=int, nargs="+", default=STOPS)
    parser.add_argument("--window", type=int, default=WINDOW)
    parser.add_argument("--hidden", type=int, default=32)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--std", type=float, default=STD)
    parser.add_argument("--parallel", type=int, default=16)
    parser.add_argument("--idle", type=float, default=600.0)
    parser.add_argument("--conversations", type=int, default=10_000)
    parser.add_argument("--rate", type=float, default=1e9)
    parser.add_argument("--body", type=int, default=2**20)
    parser.add_argument("--folder", type=Path, default=Path("/dev/shm"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    # Of weights that nobody is to sample from.
    model = tiny_model(
        options.vocab, hidden=options.hidden, layers=options.layers, std=options.std, seed=1234
    )
    kind = SlowPolicy if "SLOW" in os.environ else TorchPolicy
    policy = kind(model, options.stop, window=options.window, max_parallel=options.parallel)
    serve(
        Served(policy, describe(model, options.stop, options.window), torch.device("cpu"), "a toy"),
        address=Address(port=options.port),
        limits=ConversationLimits(options.conversations, options.idle, options.body, options.rate),
        token=os.environ.get("TOKEN"),
        folder=options.folder,
    )


if __name__ == "__main__":
    main()
