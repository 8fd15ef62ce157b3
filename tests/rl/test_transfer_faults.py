"""Transfers that go wrong are found, those that go right are not: planted faults in bfloat16, at lr 1e-6."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from agent.fingerprints import Fingerprints, fingerprint
from agent.policies.stacked_weights import held_weights
from agent.policy import PolicyError, Sampling
from bench import transfer_faults
from bench.transfer_faults import (
    FAULTS,
    Dropped,
    Sampler,
    StatesKept,
    bits,
    contract,
    found_after,
    make_learner,
    only,
    updates,
)
from rl.contract import Answers, Contract, Moves
from rl.sync import SyncError, sync


@pytest.mark.parametrize("name", [name for name in FAULTS if name != "none"])
def test_every_planted_fault_is_found_within_two_updates(name):
    one = contract()
    fault = FAULTS[name]

    def check(learner, sampler):
        sync(learner, sampler, one)

    assert found_after(fault, check, lora=fault.lora, count=2) in (1, 2)


@pytest.mark.parametrize("lora", [False, True])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("lr", [1e-6, 1e-3])
def test_nothing_is_found_where_nothing_is_wrong(lora, dtype, lr, monkeypatch):
    monkeypatch.setattr(transfer_faults, "LEARNING_RATE", lr)
    learner, one = make_learner(lora=lora, dtype=dtype), contract()
    sampler = Sampler(transfer_faults.make_model(dtype))
    sync(learner, sampler, one)
    for _ in updates(learner, 6):
        metrics = sync(learner, sampler, one)
        assert metrics["sync/logp_gap"] < (1e-4 if dtype == "float32" else 0.2)
        if dtype == "float32":
            assert metrics["sync/moved_sampler"] == pytest.approx(metrics["sync/moved_learner"], rel=0.05)


def test_the_limit_alone_sees_nothing_and_bits_see_no_states():
    """What each check is for: without it these faults pass."""
    assert found_after(Dropped, only(contract(), limit_alone=True), lora=False, count=4) is None
    assert found_after(StatesKept, bits, lora=False, count=4) is None


def test_a_fault_that_is_gone_at_the_second_look_does_not_end_the_run():
    """An answer disturbed once: the second probe is right, and the run goes on."""
    learner, one = make_learner(), contract()
    sampler = Sampler(transfer_faults.make_model("bfloat16"))
    sync(learner, sampler, one)
    asked, generate = [], sampler.generate

    def disturbed(requests, sampling):
        answers = generate(requests, sampling)
        asked.append(len(requests))
        if len(asked) == 1:
            answers[0].logps[0] -= 3.0
        return answers

    sampler.generate = disturbed
    assert sync(learner, sampler, one)["sync/logp_gap"] < 0.5
    assert len(asked) == 6  # a probe asks three times

    def always(requests, sampling):
        answers = generate(requests, sampling)
        answers[0].logps[0] -= 3.0
        return answers

    sampler.generate = always
    with pytest.raises(SyncError, match="probed twice: its log-probabilities differ"):
        sync(learner, sampler, one)


def test_another_temperature_is_found_by_what_is_sampled():
    learner = make_learner(dtype="float32")
    sampler = Sampler(transfer_faults.make_model("float32"))
    generate = sampler.generate
    sampler.generate = lambda requests, _: generate(requests, Sampling(1.1))
    with pytest.raises(SyncError, match="at another temperature"):
        sync(learner, sampler, Contract(contract().probe, 1.0, 1e-3))


def answers(ids, sampler, learner):
    return Answers(ids, [np.float32(row) for row in sampler], [np.float32(row) for row in learner])


def test_moves_by_hand():
    before = answers([[1, 2, 3], [4]], [[-1, -2, -3], [-1]], [[-1, -2, -3.5], [-1]])
    now = answers([[1, 2, 9], [4]], [[-1.5, -2, -9], [-3]], [[-2, -2, -9], [-5]])
    moves = Moves.between(before, now)
    assert moves.sampler.tolist() == [-0.5, 0.0, -2.0]  # the third token is another one
    assert moves.learner.tolist() == [-1.0, 0.0, -4.0]
    assert moves.error.tolist() == [0.0, 0.0, 0.0]
    assert moves.followed == pytest.approx((0.5 + 8.0) / 17.0)
    assert not moves.frozen
    assert now.gap == pytest.approx(2.0)


def test_a_move_that_rounding_hides_is_not_judged():
    hidden = Moves(np.zeros(8), np.full(8, 0.01), np.full(8, 0.01))
    assert hidden.followed is None and hidden.frozen
    assert Moves(np.zeros(8), np.full(8, 0.1), np.full(8, 0.01)).followed == 0.0
    assert not Moves(np.zeros(8), np.zeros(8), np.zeros(8)).frozen  # nobody moved


@given(
    st.sampled_from([torch.bfloat16, torch.float16, torch.float32, torch.float64]),
    st.integers(1, 40),
    st.integers(0, 10**6),
    st.integers(0, 63),
)
def test_every_bit_of_every_element_counts(dtype, count, seed, bit):
    values = torch.from_numpy(np.random.default_rng(seed).normal(size=count)).to(dtype)
    other = values.clone()
    raw = other.view({2: torch.int16, 4: torch.int32, 8: torch.int64}[other.element_size()])
    place, width = seed % count, 8 * other.element_size()
    raw[place] ^= torch.tensor(1, dtype=raw.dtype) << (bit % width)
    assert fingerprint(values) != fingerprint(other)
    assert fingerprint(values) == fingerprint(values.clone().reshape(1, -1))
    if count > 1 and not torch.equal(values, values.flip(0)):
        assert fingerprint(values) != fingerprint(values.flip(0))


def test_large_tensors_are_read_in_parts(monkeypatch):
    values = torch.arange(1000.0)
    whole = fingerprint(values)
    monkeypatch.setattr("agent.fingerprints._CHUNK", 7)
    assert fingerprint(values) == whole < 2**64


def test_what_was_not_given_and_what_is_not_held_are_differences():
    given = Fingerprints(torch.bfloat16)
    weights = {"a": torch.ones(3), "b": torch.full((2,), 1 / 3)}
    assert list(given.passing(weights.items())) == list(weights.items())
    held = {name: weight.bfloat16() for name, weight in weights.items()}
    assert given.differences(held.items()) == []
    assert given.differences([*held.items(), ("c", held["a"])]) == ["c"]
    assert given.differences([("a", held["a"])]) == ["b"]
    assert given.differences([*held.items(), ("a", torch.zeros(3))]) == ["a"]


def test_stacked_weights_are_read_back_part_by_part():
    rows = {"q": 4, "k": 2, "v": 2}
    shapes = {"model.embed_tokens.weight": [5, 4], "model.layers.0.mlp.down_proj.weight": [4, 6]}
    for part, count in rows.items():
        shapes[f"model.layers.0.self_attn.{part}_proj.weight"] = [count, 4]
        shapes[f"model.layers.0.self_attn.{part}_proj.bias"] = [count]
    values = {name: torch.randn(shape) for name, shape in shapes.items()}
    attention = "model.layers.0.self_attn."
    stacked = {
        f"{attention}qkv_proj.{k}": torch.cat([values[f"{attention}{p}_proj.{k}"] for p in "qkv"])
        for k in ("weight", "bias")
    }
    parameters = {
        "model.embed_tokens.weight": torch.cat([values["model.embed_tokens.weight"], torch.zeros(3, 4)]),
        "model.layers.0.mlp.down_proj.weight": values["model.layers.0.mlp.down_proj.weight"],
        **stacked,
    }
    stacks = {"qkv_proj": ["q_proj", "k_proj", "v_proj"], "gate_up_proj": ["gate_proj", "up_proj"]}
    found = dict(held_weights(parameters, stacks, shapes))
    assert found.keys() == values.keys()
    assert all(torch.equal(found[name], value) for name, value in values.items())
    apart = parameters | {"lm_head.weight": torch.zeros(8, 4)}
    assert [name for name, _ in held_weights(apart, stacks, shapes)].count("model.embed_tokens.weight") == 2
    tied = parameters | {"lm_head.weight": parameters["model.embed_tokens.weight"]}
    assert [name for name, _ in held_weights(tied, stacks, shapes)].count("model.embed_tokens.weight") == 1
    del parameters[f"{attention}qkv_proj.bias"]
    with pytest.raises(PolicyError, match=r"no parameter .*qkv_proj.bias for .*q_proj.bias"):
        list(held_weights(parameters, stacks, shapes))
