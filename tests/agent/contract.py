"""What the tests of the contract ask and expect."""

import torch

from agent.policy import Sampling
from agent.types import Request

NEAR = {"abs": 1e-4}  # nats, float32


def ask(policy, ids, key=0, *, fresh=True, seed=0, limit=12, temperature=1.0, keep=None):
    return policy.generate([Request(key, ids, fresh, seed, limit, keep)], Sampling(temperature))[0]


@torch.no_grad()
def logits_of(model, prompt, response):
    """The logits that each token of a response was drawn from [tokens, V]."""
    return model(torch.tensor([[*prompt, *response]])).logits[0, len(prompt) - 1 : -1].float()


def full_logps(model, prompt, response, temperature=1.0):
    logp_NV = torch.log_softmax(logits_of(model, prompt, response) / temperature, dim=-1)
    return logp_NV[range(len(response)), response].tolist()
