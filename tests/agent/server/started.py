"""Real policy servers in processes of their own, and the toy model that they and the tests share."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import torch

from agent.policies.torch_policy import TorchPolicy
from agent.server.app import ConversationLimits
from agent.server.policy_server import Served, serve
from agent.wire.messages import describe
from serving.address import Address
from tests.serving import ServerProcess, running
from tests.toy import tiny_model

VOCAB, STOPS, WINDOW, STD = 400, (1, 3), 1500, 0.1  # of the toy tokenizer and environment, with room
TOKEN = "0123456789abcdef-right"
HEADERS = {"Authorization": f"Bearer {TOKEN}"}


def toy_model(seed: int = 0, vocab: int = VOCAB, layers: int = 2):
    return tiny_model(vocab, std=STD, seed=seed, layers=layers)


def toy_description(model=None, stops: Sequence[int] = STOPS, window: int = WINDOW):
    return describe(model or toy_model(), stops, window)


def local_policy(model, max_parallel: int = 16) -> TorchPolicy:
    return TorchPolicy(model, STOPS, window=WINDOW, max_parallel=max_parallel)


class Server(ServerProcess):
    """This module's `main` in a process of its own."""

    module = "tests.agent.server.started"
    variables = {"OMP_NUM_THREADS": "1"}


def started(*arguments: str, **variables: str) -> AbstractContextManager[ServerProcess]:
    """A server for the time of a block."""
    return running(Server(arguments, **variables))


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
