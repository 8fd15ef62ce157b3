"""The backends that the contract of `agent.policy.Policy` is tested with.

A new one is a generator function here: it starts what the backend needs, yields a function that returns a
policy (`WINDOW`, `PARALLEL`, `STOP`) with the weights of a given `contract_model` as version 0, no rows and
nothing in flight, and ends what it started. Several tests share what it starts.
"""

import tempfile

import pytest

from agent.policies.server_policy import ServerPolicy
from agent.policies.torch_policy import TorchPolicy
from agent.wire.messages import describe
from tests.agent.server.started import started
from tests.toy import tiny_model

VOCAB, STOP = 50, 3
WINDOW, PARALLEL = 320, 16


def contract_model(seed=0):
    """A peaked random model whose heads have a size (32) that every backend's attention can do."""
    return tiny_model(VOCAB, hidden=128, std=0.12, seed=seed)


def torch_backend():
    def policy_of(model):
        return TorchPolicy(model, [STOP], window=WINDOW, max_parallel=PARALLEL)

    yield policy_of


def vllm_backend():
    pytest.importorskip("vllm")
    from agent.policies.vllm_policy import VLLMPolicy

    with tempfile.TemporaryDirectory() as folder:
        contract_model().save_pretrained(folder)
        policy = VLLMPolicy(folder, [STOP], window=WINDOW, max_parallel=PARALLEL, eager=True)

    def policy_of(model):
        for key in list(policy._rows):
            policy.release(key)
        policy.load_weights(model.named_parameters(), version=0)
        return policy

    yield policy_of


def server_backend():
    with started(
        *("--vocab", str(VOCAB), "--stop", str(STOP), "--window", str(WINDOW), "--parallel", str(PARALLEL)),
        *("--hidden", "128", "--std", "0.12"),
    ) as server:
        policies = []

        def policy_of(model):
            for old in policies:
                old.close()
            model_here = describe(contract_model(), [STOP], WINDOW)
            policies[:] = [ServerPolicy([server.url], model_here, timeout_s=60.0)]
            policies[0].load_weights(model.named_parameters(), version=0)
            return policies[0]

        yield policy_of
        for old in policies:
            old.close()


BACKENDS = {
    "torch": (torch_backend, ()),
    "server": (server_backend, ()),
    "vllm": (vllm_backend, pytest.mark.slow),
}
