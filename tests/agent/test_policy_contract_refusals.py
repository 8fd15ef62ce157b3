"""What every back end refuses alike."""

import pytest
import torch

from agent.policy import PolicyError, Sampling
from agent.types import Request
from tests.agent.backends import WINDOW, contract_model
from tests.agent.contract import NEAR, ask, full_logps


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w: w.pop("model.norm.weight"), r"no value for model\.norm\.weight"),
        (lambda w: w.pop("model.layers.1.self_attn.k_proj.bias"), r"no value for .*k_proj\.bias"),
        (lambda w: w.update({"model.norm.bias": torch.zeros(128)}), "unknown weight 'model.norm.bias'"),
        (lambda w: w.update({"model.norm.weight": torch.zeros(31)}), r"\(31,\), the policy's is \(128,\)"),
    ],
)
def test_weights_of_another_model_are_refused(policy_of, change, message):
    model = contract_model()
    policy = policy_of(model)
    weights = dict(model.named_parameters())
    change(weights)
    with pytest.raises(PolicyError, match=message):
        policy.load_weights(weights.items(), version=1)
    assert policy.version == 0
    policy.load_weights(model.named_parameters(), version=2)
    generation = ask(policy, [5, 6])
    assert generation.logps == pytest.approx(full_logps(model, [5, 6], generation.ids), **NEAR)


def test_the_second_name_of_tied_weights_will_do(policy_of):
    old, new = contract_model(), contract_model(seed=1)
    policy, weights = policy_of(old), dict(new.named_parameters())
    weights["lm_head.weight"] = weights.pop("model.embed_tokens.weight")
    policy.load_weights(weights.items(), version=1)
    generation = ask(policy, [5, 6])
    assert generation.logps == pytest.approx(full_logps(new, [5, 6], generation.ids), **NEAR)


@pytest.mark.parametrize(
    ("requests", "message"),
    [
        ([Request(0, [5], True, 0, 5), Request(0, [5], True, 0, 5)], "same key"),
        ([Request(0, [5], False, 0, 5)], "unknown and its request not fresh"),
        ([Request(0, [], True, 0, 5)], "must not be empty"),
        ([Request(0, [5] * WINDOW, True, 0, 5)], rf"leave room in the window \({WINDOW}\)"),
        ([Request(0, [5], True, 0, 0)], "up to 0"),
    ],
)
def test_requests_against_the_contract_are_refused(policy_of, requests, message):
    policy = policy_of(contract_model())
    with pytest.raises(PolicyError, match=message):
        policy.generate(requests, Sampling())
    assert policy.advance() == []


def test_nothing_asked_nothing_answered(policy_of):
    policy = policy_of(contract_model())
    assert policy.generate([], Sampling()) == []
    assert policy.window == WINDOW
