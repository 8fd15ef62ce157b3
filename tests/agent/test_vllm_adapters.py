"""Adapters in vLLM: handed over in memory, computed as peft computes them, and never those of before."""

import gc

import pytest
import torch

from agent.policy import PolicyError, Sampling
from agent.types import Request
from rl.learner.lora import LoraOptions, adapter_scaling, adapter_weights, add_adapters, base_weights
from tests.agent.backends import STOP, contract_model
from tests.agent.contract import NEAR, full_logps

pytest.importorskip("vllm")
pytestmark = pytest.mark.slow

from agent.policies.vllm_policy import VLLMPolicy  # noqa: E402

RANK = 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    contract_model().save_pretrained(folder)
    return folder


def policy_in(folder, **options):
    options = {"window": 320, "max_parallel": 16, "batched_tokens": 320, "eager": True} | options
    return VLLMPolicy(folder, [STOP], **options)


@pytest.fixture(scope="module")
def policy(folder):
    return policy_in(folder, adapter_rank=RANK)


def adapted(*, targets="all-linear", rank=RANK, seed=0, dtype=torch.float32, std=0.1):
    model = contract_model().to(dtype)
    add_adapters(model, LoraOptions(rank, alpha=3.0 * rank, targets=targets), seed=seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".lora_B." in name:
                parameter.copy_(std * torch.randn(parameter.shape, generator=generator))
    return model


def scaled(model):
    """As `rl.hand_over` hands them over."""
    scaling = adapter_scaling(model)
    for name, weight in adapter_weights(model):
        yield name, weight * scaling if ".lora_B." in name else weight


def give(policy, model, version=1):
    if policy.wants_base:
        policy.load_weights(base_weights(model), version)
    policy.load_adapters(scaled(model), version)


def check(policy, model, near=NEAR, ids=None):
    """Every response, of prompts of several blocks, has the probabilities of a whole forward pass."""
    requests = [Request(key, (ids or [5 + key]) * 100, True, key, 12) for key in range(8)]
    for request, generation in zip(requests, policy.generate(requests, Sampling(0.7)), strict=True):
        assert generation.logps == pytest.approx(full_logps(model, request.ids, generation.ids, 0.7), **near)


def test_it_computes_with_the_adapters_it_was_given_last(policy):
    """The same prompts each time: states cached with older adapters would be met."""
    for seed in (1, 2, 3):
        model = adapted(seed=seed)
        give(policy, model, seed)
        assert policy.version == seed
        check(policy, model)
    policy.load_weights(contract_model(4).named_parameters(), 4)
    check(policy, contract_model(4))  # they are gone with the weights they were for
    policy.wants_base = True
    give(policy, adapted(seed=5), 5)
    check(policy, adapted(seed=5))


@pytest.mark.parametrize("targets", [["q_proj", "v_proj"], ["gate_proj"], ["k_proj", "down_proj"]])
def test_parts_of_what_vllm_has_as_one_matrix(policy, targets):
    """q, k and v are one there, gate and up too; the parts without an adapter must lose those of before."""
    give(policy, adapted(seed=1))
    model = adapted(targets=targets, seed=2, std=0.3)
    give(policy, model)
    check(policy, model)


def test_what_it_holds_is_read_back_from_where_it_computes(policy):
    """Only some parts have an adapter; another part's, left over, would be seen."""
    model = adapted(targets=["k_proj", "down_proj"], seed=1)
    give(policy, model)
    held, given = dict(policy.held_weights()), dict([*base_weights(model), *scaled(model)])
    assert held.keys() == given.keys()
    assert all(torch.equal(weight, given[name]) for name, weight in held.items())
    stacked = policy._engine._runner.lora_manager._adapter_manager.modules["model.layers.0.mlp.gate_up_proj"]
    stacked.lora_b_stacked[1].fill_(1.0)
    left_over = policy.held_weights()
    assert "base_model.model.model.layers.0.mlp.up_proj.lora_B.weight" in dict(left_over)


def test_after_a_sleep_the_base_comes_first(policy, monkeypatch):
    """As on an accelerator, where a sleep drops adapters too; what lay there is overwritten here."""
    model = adapted(seed=1)
    give(policy, model)
    check(policy, model)
    monkeypatch.setattr(policy._engine, "cpu", False)
    policy.sleep()
    runner = policy._engine._engine.model_executor.driver_worker.model_runner
    for module in runner.lora_manager._adapter_manager.modules.values():
        for stacked in (*module.lora_a_stacked, *module.lora_b_stacked):
            stacked.fill_(7.0)
    assert policy.wants_base
    with pytest.raises(PolicyError, match="load_weights must come first"):
        policy.load_adapters(scaled(model), 2)
    give(policy, model, 3)
    check(policy, model)


def test_what_vllm_cannot_hold_is_refused(policy, folder, monkeypatch):
    with pytest.raises(PolicyError, match="rank 512 at most, got 513: lower model.lora.r"):
        policy_in(folder, adapter_rank=513)
    large = adapted(rank=9)
    with pytest.raises(PolicyError, match="rank 9, and vLLM was started for 8"):
        give(policy, large)
    with pytest.raises(PolicyError, match="load_weights must come first, and after sleep"):
        policy.generate([Request(0, [5], True, 0, 4)], Sampling())  # nothing half loaded is sampled from
    give(policy, adapted(seed=1))
    manager = policy._engine._engine.model_executor.driver_worker.model_runner.lora_manager._adapter_manager
    left = {name: m for name, m in manager.modules.items() if not name.endswith("layers.1.mlp.down_proj")}
    monkeypatch.setattr(manager, "modules", left)  # as of an architecture that has no place there
    with pytest.raises(PolicyError, match=r"no place for an adapter of model.layers.1.mlp.down_proj: leave"):
        give(policy, adapted(seed=2))


def test_without_a_rank_it_takes_none(folder):
    plain = policy_in(folder)
    assert not plain.takes_adapters
    plain.load_weights(contract_model().named_parameters(), 1)
    with pytest.raises(PolicyError, match="adapter_rank"):
        plain.load_adapters(scaled(adapted()), 1)
    del plain
    gc.collect()


@pytest.mark.parametrize("eager", [True, False])
def test_half_precision(folder, eager):
    """bfloat16, the type that adapters are kept apart for; compiled too."""
    other = policy_in(folder, dtype="bfloat16", adapter_rank=RANK, eager=eager)
    for seed in (1, 2):
        model = adapted(seed=seed, dtype=torch.bfloat16)
        give(other, model, seed)
        check(other, model, near={"abs": 0.1})
