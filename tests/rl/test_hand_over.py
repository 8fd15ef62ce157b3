"""Adapters go to the policy as adapters: it samples from what was learned, which bfloat16 sums would lose."""

import copy

import numpy as np
import pytest
import torch

from agent.fingerprints import Fingerprints
from agent.policies.torch_policy import TorchPolicy
from agent.policy import PolicyError, Sampling
from agent.types import Request
from rl.contract import Contract
from rl.hand_over import hand_over
from rl.learner.engine import OptimOptions
from rl.learner.learner import BatchOptions
from rl.learner.lora import LoraOptions, adapter_weights, add_adapters, base_weights
from rl.rows.assemble import step_table
from rl.sync import sync
from tests.rl.helpers import VOCAB, make_learner, random_groups, score_with
from tests.toy import tiny_model

LR, OPTIONS = 1e-5, LoraOptions(8, alpha=16.0)
SCALING = 2.0


@pytest.fixture(scope="module")
def batch():
    groups = random_groups(groups=3, size=4)
    advantage = np.random.default_rng(1).normal(size=len(step_table(groups)))
    return score_with(tiny_model(VOCAB, std=0.3), groups), advantage


def base(dtype=torch.bfloat16):
    return tiny_model(VOCAB, hidden=128, std=0.3).to(dtype)


def learner_of(lr=LR, dtype=torch.bfloat16, stage=None):
    model = base(dtype)
    add_adapters(model, OPTIONS)
    learner = make_learner(model, lr=lr, batches=BatchOptions(token_budget=400))
    if stage is not None:
        pytest.importorskip("deepspeed")
        from rl.learner.deepspeed_engine import DeepSpeedEngine

        model = base(dtype)
        add_adapters(model, OPTIONS)
        learner.engine = DeepSpeedEngine(model, OptimOptions(), zero_stage=stage)
    return learner


def policy_of(dtype=torch.bfloat16, *, takes_adapters=True):
    policy = TorchPolicy(base(dtype), [3], window=320, max_parallel=16)
    policy.takes_adapters = takes_adapters
    return policy


def hand(learner, policy):
    hand_over(learner, policy, Fingerprints(policy.dtype))


def ask(policy, *, key=0, fresh=True, ids=(5, 6, 7), limit=12):
    request = Request(key=key, ids=list(ids), fresh=fresh, seed=key, max_new_tokens=limit)
    return policy.generate([request], Sampling())[0]


def learned(learner):
    """Each adapted layer's change as the float32 masters have it, float64."""
    masters = {
        name.replace(".default.", "."): w.double() for name, w in learner.engine._masters.state().items()
    }
    return {
        name.removesuffix(".lora_A.weight"): SCALING * masters[name.replace("lora_A", "lora_B")] @ half
        for name, half in masters.items()
        if "lora_A" in name
    }


def sampled_from(policy):
    """The matrix of each adapted layer that the policy computes with, float64."""
    weights = {name.removesuffix(".weight"): w.double() for name, w in policy._model.state_dict().items()}
    for name, (a, b) in policy._adapters.held.items():
        weights[name] = weights[name] + b.double() @ a.double()
    return weights


def cosine(batch, *, takes_adapters, steps):
    """Of learner's and sampler's move over so many optimiser steps."""
    learner, policy = learner_of(), policy_of(takes_adapters=takes_adapters)
    hand(learner, policy)
    before = learned(learner), sampled_from(policy)
    for update in range(1, steps + 1):
        learner.update(*batch, update=update)
    hand(learner, policy)
    after = learned(learner), sampled_from(policy)
    ours, theirs = (
        torch.cat([(now[name] - then[name]).flatten() for name in before[0]])
        for then, now in zip(before, after, strict=True)
    )
    return float(torch.nn.functional.cosine_similarity(ours, theirs, dim=0))


@pytest.mark.parametrize("steps", [1, 10])
def test_the_sampler_moves_as_the_learner_does(batch, steps):
    assert cosine(batch, takes_adapters=True, steps=steps) > 0.99


def test_merged_into_bfloat16_most_of_a_step_is_lost(batch):
    """Why adapters are not merged where that can be helped; the figures are in docs/gpu.md."""
    assert cosine(batch, takes_adapters=False, steps=1) < 0.5


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_policy_computes_what_peft_does_to_the_bit(batch, dtype):
    learner, policy = learner_of(1e-2, dtype), policy_of(dtype)
    for update in (1, 2):
        learner.update(*batch, update=update)
        hand(learner, policy)
    expected = TorchPolicy(copy.deepcopy(learner.engine.model), [3], window=320, max_parallel=16)
    assert ask(policy) == ask(expected)
    assert ask(policy).logps != ask(policy_of(dtype)).logps


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("stage", [None, 1, 3])
def test_the_contract_holds_and_the_changed_share_is_the_adapters(batch, stage):
    learner, policy = learner_of(1e-2, torch.float32, stage), policy_of(torch.float32)
    contract = Contract(list(range(4, 20)), tolerance=1e-4)
    assert "train/weights_changed" not in sync(learner, policy, contract)
    before = dict(learner.engine.adapter_weights())
    for update in (1, 2):
        learner.update(*batch, update=update)
        shares = sync(learner, policy, contract)
        assert policy.version == learner.version == update
        after = dict(learner.engine.adapter_weights())
        changed = sum(int((after[name] != before[name]).sum()) for name in after)
        count = sum(weight.numel() for weight in after.values())
        assert shares["train/weights_changed"] == pytest.approx(changed / count)
        before = after
    assert sync(learner, policy)["train/weights_changed"] == 0.0


def test_rows_that_go_on_are_computed_anew_and_merged_weights_end_the_adapters(batch):
    learner, policy = learner_of(1e-2, torch.float32), policy_of(torch.float32)
    hand(learner, policy)
    first = ask(policy)
    learner.update(*batch, update=1)
    hand(learner, policy)
    went_on = ask(policy, fresh=False, ids=(8, 9))
    row = [5, 6, 7, *first.ids, 8, 9]
    assert went_on.logps == pytest.approx(ask(policy, key=0, ids=row).logps, abs=1e-5)
    merged = policy_of(torch.float32, takes_adapters=False)
    for target in (policy, merged):
        target.load_weights(learner.named_weights(), 2)
    assert ask(policy) == ask(merged)


def test_the_base_goes_once_and_after_it_was_dropped(batch):
    learner, policy, taken = learner_of(), policy_of(), []
    load = policy.load_weights
    policy.load_weights = lambda weights, version: taken.append(version) or load(weights, version)
    for update in (1, 2):
        hand(learner, policy)
        learner.update(*batch, update=update)
    policy.wants_base = True  # as after the sleep of a policy that drops its weights
    hand(learner, policy)
    assert taken == [0, 2]


def test_what_fits_no_layer_is_refused():
    policy, learner = policy_of(), learner_of()
    weights = dict(learner.engine.adapter_weights())
    with pytest.raises(PolicyError, match="load_weights must come first"):
        policy.load_adapters(weights.items(), 1)
    policy.load_weights(base_weights(learner.engine.model), 1)
    first = next(iter(weights))
    wrong = {
        "only one of A and B came for model.layers.0": {first: weights[first]},
        "unknown weight 'model.norm.weight'": {"model.norm.weight": torch.ones(1)},
        "no module 'model.layers.9": {
            name.replace("layers.0", "layers.9"): weight for name, weight in weights.items()
        },
        "adapters of another model": {name: weight[:, :1] for name, weight in weights.items()},
    }
    for message, given in wrong.items():
        with pytest.raises(PolicyError, match=message):
            policy.load_adapters(given.items(), 1)
    policy.start([Request(0, [5], True, 0, 12)], Sampling())
    with pytest.raises(PolicyError, match="in flight"):
        policy.load_adapters(weights.items(), 1)


def test_what_is_handed_over_is_copied():
    learner, policy = learner_of(), policy_of()
    policy.load_weights(base_weights(learner.engine.model), 1)
    weights = dict(adapter_weights(learner.engine.model))
    policy.load_adapters(weights.items(), 1)
    expected = ask(policy)
    for weight in weights.values():
        weight.fill_(1.0)
    assert ask(policy, key=0) == expected
