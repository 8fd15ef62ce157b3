"""What the tests of the contract ask and expect."""

import pytest
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


def check_rows_over_time(policy, model, other, temperature, prompts, near):
    """Eleven rows over six rounds, not everyone in each; from round 3 on with the weights of `other`.

    Args:
        prompts: (count, seed) → prompts.
        near: How close log-probabilities have to be to a whole forward pass's, for `pytest.approx`.
    """
    rows = [[] for _ in range(11)]
    for t in range(6):
        if t == 3:  # rows go on: nothing computed with the old weights may be used
            model = other
            policy.load_weights(model.named_parameters(), version=1)
        keys = [key for key in range(11) if (key + t) % 3]
        asked = dict(zip(keys, prompts(len(keys), seed=t), strict=True))
        requests = [Request(key, ids, not rows[key], 100 * t + key, 9) for key, ids in asked.items()]
        found = policy.generate(requests, Sampling(temperature))
        for request, generation in zip(requests, found, strict=True):
            row = rows[request.key]
            row += request.ids
            assert generation.logps == pytest.approx(
                full_logps(model, row, generation.ids, temperature), **near
            )
            row += generation.ids
    return rows
