"""Generation with a cache against a full forward pass, and its contract."""

import numpy as np
import pytest
import torch

from agent.policies.token_sampling import draw
from agent.policies.torch_policy import PolicyError, TorchPolicy
from agent.policy import Sampling
from agent.types import Request
from tests.agent.contract import check_rows_over_time, full_logps
from tests.toy import tiny_model

VOCAB, STOP = 50, 3


def make(seed=0, **options):
    model = tiny_model(VOCAB, std=0.2, seed=seed)
    return model, TorchPolicy(model, [STOP], **{"window": 200, "max_parallel": 16} | options)


def prompts(count, seed=0, low=1, high=20):
    rng = np.random.default_rng(seed)
    return [rng.integers(4, VOCAB, size=rng.integers(low, high)).tolist() for _ in range(count)]


def ask(policy, ids, key=0, *, fresh=True, seed=0, limit=12, temperature=1.0):
    return policy.generate([Request(key, ids, fresh, seed, limit)], Sampling(temperature))[0]


@pytest.mark.parametrize("temperature", [1.0, 0.6])
@pytest.mark.parametrize("prefill_tokens", [8, 4096])
def test_log_probabilities_equal_a_full_forward_pass_over_steps_and_new_weights(temperature, prefill_tokens):
    model, policy = make(prefill_tokens=prefill_tokens)
    other = tiny_model(VOCAB, std=0.2, seed=1)
    check_rows_over_time(policy, model, other, temperature, prompts, {"abs": 1e-5})


def test_a_response_depends_on_its_seed_and_not_on_its_company():
    _, policy = make(max_parallel=4)
    asked = prompts(13)
    together = policy.generate([Request(i, ids, True, i, 12) for i, ids in enumerate(asked)], Sampling())
    backwards = policy.generate(
        [Request(i, ids, True, i, 12) for i, ids in reversed(list(enumerate(asked)))], Sampling()
    )
    alone = [ask(make()[1], ids, seed=i) for i, ids in enumerate(asked)]
    ids = [generation.ids for generation in together]
    assert ids == [g.ids for g in reversed(backwards)] == [g.ids for g in alone]
    assert ask(policy, asked[0], seed=99).ids != ids[0]


def test_members_that_share_a_prompt_share_its_computation_and_nothing_else():
    model, policy = make()
    prompt = prompts(1, low=30, high=31)[0]
    passes = []
    policy._model.register_forward_pre_hook(
        lambda module, args, kwargs: passes.append(kwargs["input_ids"].shape[1]), with_kwargs=True
    )
    generations = policy.generate([Request(i, prompt, True, i, 12) for i in range(8)], Sampling())
    assert passes[0] == 30
    assert len({tuple(g.ids) for g in generations}) > 1
    for generation in generations:
        assert generation.logps == pytest.approx(full_logps(model, prompt, generation.ids), abs=1e-5)
    for key, generation in enumerate(generations):
        more = ask(policy, [7, 8], key, fresh=False)
        expected = full_logps(model, [*prompt, *generation.ids, 7, 8], more.ids)
        assert more.logps == pytest.approx(expected, abs=1e-5)


def test_a_continuation_feeds_only_what_is_new():
    _, policy = make()
    first = ask(policy, prompts(1, low=30, high=31)[0])
    passes = []
    policy._model.register_forward_pre_hook(
        lambda module, args, kwargs: passes.append(kwargs["input_ids"].shape[1]), with_kwargs=True
    )
    ask(policy, [5, 6, 7], fresh=False)
    assert passes[0] == 4  # the last sampled token, never fed, and the new ones
    assert set(passes[1:]) == {1} and first.ids


def test_a_row_whose_slot_was_taken_is_computed_again():
    model, policy = make(max_parallel=2)
    rows = prompts(5)
    for t in range(3):
        for key, row in enumerate(rows):
            new = row if t == 0 else [9, 10]
            prompt = row if t == 0 else [*row, *new]
            generation = ask(policy, new, key, fresh=t == 0, seed=t)
            assert generation.logps == pytest.approx(full_logps(model, prompt, generation.ids), abs=1e-5)
            rows[key] = prompt + generation.ids


def test_finish_says_why_a_response_ended():
    _, policy = make()
    finishes = set()
    for i, ids in enumerate(prompts(40)):
        generation = ask(policy, ids, key=i, seed=i, limit=30)
        finishes.add(generation.finish)
        assert STOP not in generation.ids[:-1]
        assert (generation.ids[-1] == STOP) == (generation.finish == "stop")
        assert generation.finish == "stop" or len(generation.ids) == 30
        assert len(generation.ids) == len(generation.logps)
        policy.release(i)
    assert finishes == {"stop", "length"}


def test_the_window_cuts_a_response():
    _, policy = make(window=40)
    generation = next(
        g for s in range(50) if (g := ask(policy, [5] * 35, seed=s, limit=30)).finish == "length"
    )
    assert len(generation.ids) == 5


def test_greedy_takes_the_most_likely_token():
    model, policy = make()
    prompt = prompts(1)[0]
    generation = ask(policy, prompt, temperature=0.0)
    row = list(prompt)
    for token in generation.ids:
        assert token == int(model(torch.tensor([row])).logits[0, -1].argmax())
        row.append(token)
    assert generation.logps == [0.0] * len(generation.ids)


def test_draws_follow_the_distribution():
    probability_V = np.asarray([0.5, 0.0, 0.2, 0.3, 0.0])
    logits_RV = torch.tensor(probability_V).log().float().expand(4000, -1)
    uniform_R = np.random.default_rng(0).random(4000)
    for temperature in (1.0, 0.5):
        expected_V = probability_V ** (1 / temperature)
        expected_V /= expected_V.sum()
        ids_R, logp_R = draw(logits_RV, uniform_R, temperature)
        assert np.bincount(ids_R, minlength=5) / 4000 == pytest.approx(expected_V, abs=0.03)
        assert logp_R == pytest.approx(np.log(expected_V[ids_R]), abs=1e-6)
    edges, _ = draw(logits_RV[:3], np.asarray([0.0, 0.500001, np.nextafter(1.0, 0.0)]), 1.0)
    assert edges.tolist() == [0, 2, 3]  # never a token of probability 0


def test_its_weights_are_its_own():
    model, policy = make()
    prompt = prompts(1)[0]
    before = ask(policy, prompt).logps
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2.0)
    assert ask(policy, prompt).logps == before
    assert policy.version == 0
    policy.load_weights(model.state_dict().items(), version=7)
    assert policy.version == 7
    assert ask(policy, prompt).logps != before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w: w.pop("model.norm.weight"), r"no value for model\.norm\.weight"),
        (lambda w: w.update({"model.norm.bias": torch.zeros(32)}), "unknown weight 'model.norm.bias'"),
        (lambda w: w.update({"model.norm.weight": torch.zeros(31)}), r"\(31,\), the policy's is \(32,\)"),
    ],
)
def test_weights_of_another_model_are_refused(change, message):
    model, policy = make()
    weights = dict(model.named_parameters())
    change(weights)
    with pytest.raises(PolicyError, match=message):
        policy.load_weights(weights.items(), version=1)
    assert policy.version == 0


@pytest.mark.parametrize(
    ("requests", "message"),
    [
        ([Request(0, [5], True, 0, 5), Request(0, [5], True, 0, 5)], "same key"),
        ([Request(0, [5], False, 0, 5)], "unknown and its request not fresh"),
        ([Request(0, [], True, 0, 5)], "must not be empty"),
        ([Request(0, [5] * 200, True, 0, 5)], r"leave room in the window \(200\)"),
        ([Request(0, [5], True, 0, 0)], "up to 0"),
    ],
)
def test_requests_against_the_contract_are_refused(requests, message):
    _, policy = make()
    with pytest.raises(PolicyError, match=message):
        policy.generate(requests, Sampling())


def test_half_precision_weights():
    model = tiny_model(VOCAB, std=0.2).to(torch.bfloat16)
    policy = TorchPolicy(model, [STOP], window=200)
    prompt = prompts(1)[0]
    generation = ask(policy, prompt)
    assert generation.logps == pytest.approx(full_logps(model.float(), prompt, generation.ids), abs=0.05)


def test_a_sliding_window_is_refused_rather_than_ignored():
    model = tiny_model(VOCAB)
    model.model.layers[0].self_attn.sliding_window = 4
    with pytest.raises(NotImplementedError, match="sliding windows"):
        ask(TorchPolicy(model, [STOP], window=200), [5, 6])


def test_nothing_asked_nothing_answered():
    _, policy = make()
    assert policy.generate([], Sampling()) == []
    policy.release(12345)
