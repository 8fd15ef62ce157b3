"""What every generator promises (`agent.policy.Policy`), against plain forward passes of the same model."""

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from agent.policy import PolicyError, Sampling
from agent.types import Request
from tests.agent.backends import PARALLEL, STOP, VOCAB, WINDOW, contract_model
from tests.agent.contract import NEAR, ask, check_rows_over_time, full_logps, logits_of


def prompts(count, seed=0, low=1, high=20):
    rng = np.random.default_rng(seed)
    return [rng.integers(4, VOCAB, size=rng.integers(low, high)).tolist() for _ in range(count)]


def until_ended(policy, count):
    """Rounds until `count` responses ended, by key; a policy that ends fewer fails here."""
    found = {}
    for _ in range(10_000):
        found.update(policy.advance())
        if len(found) == count:
            return found
    raise AssertionError(f"{len(found)} of {count} responses ended")


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_log_probabilities_are_the_models_over_steps_and_new_weights(policy_of, temperature):
    model = contract_model()
    policy = policy_of(model)
    rows = check_rows_over_time(policy, model, contract_model(seed=1), temperature, prompts, NEAR)
    assert max(max(row) for row in rows) < VOCAB


def test_long_shared_prompts_are_computed_again_with_new_weights(policy_of):
    old, new = contract_model(), contract_model(seed=1)
    policy = policy_of(old)
    shared = prompts(1, low=200, high=201)[0]
    requests = [Request(key, [*shared, 4 + key], True, key, 8) for key in range(8)]
    for model, version in ((old, 0), (new, 1), (old, 2)):
        if version:
            policy.load_weights(model.state_dict().items(), version)
        assert policy.version == version
        for request, generation in zip(requests, policy.generate(requests, Sampling()), strict=True):
            expected = full_logps(model, request.ids, generation.ids)
            assert generation.logps == pytest.approx(expected, **NEAR)
            other = full_logps(old if model is new else new, request.ids, generation.ids)
            assert np.abs(np.subtract(generation.logps, other)).max() > 0.1, "the test cannot tell them apart"


def test_draws_follow_the_distribution(policy_of):
    model = contract_model()
    policy, prompt, count = policy_of(model), prompts(1, low=9, high=10)[0], 1500
    probability_V = torch.softmax(logits_of(model, prompt, [0])[0] / 0.7, dim=-1).double().numpy()
    requests = [Request(key, prompt, True, 1000 + key, 1) for key in range(count)]
    drawn = [g.ids[0] for g in policy.generate(requests, Sampling(0.7))]
    counts_V, expected_V = np.bincount(drawn, minlength=VOCAB), probability_V * count
    rare = expected_V < 5
    observed = np.append(counts_V[~rare], counts_V[rare].sum())
    assert chisquare(observed, np.append(expected_V[~rare], expected_V[rare].sum())).pvalue > 0.001
    assert (~rare).sum() > 4


def test_a_response_depends_on_its_seed_and_not_on_its_company(policy_of):
    policy, asked = policy_of(contract_model()), prompts(2 * PARALLEL + 3, high=60)
    requests = [Request(i, ids, True, i, 12) for i, ids in enumerate(asked)]
    together = policy.generate(requests, Sampling())
    backwards = policy.generate(requests[::-1], Sampling())
    ids = [generation.ids for generation in together]
    assert ids == [g.ids for g in reversed(backwards)]
    assert ids == [ask(policy, prompt, key=99, seed=i).ids for i, prompt in enumerate(asked)]
    others = [ask(policy, prompt, key=99, seed=1000 + i).ids for i, prompt in enumerate(asked[:5])]
    assert others != ids[:5]


def test_members_of_a_group_share_a_prompt_and_nothing_else(policy_of):
    model = contract_model()
    policy, prompt = policy_of(model), prompts(1, low=150, high=151)[0]
    generations = policy.generate([Request(i, prompt, True, i, 12) for i in range(8)], Sampling())
    assert len({tuple(g.ids) for g in generations}) > 1
    for key, generation in enumerate(generations):
        assert generation.logps == pytest.approx(full_logps(model, prompt, generation.ids), **NEAR)
        more = ask(policy, [7, 8], key, fresh=False)
        assert more.logps == pytest.approx(
            full_logps(model, [*prompt, *generation.ids, 7, 8], more.ids), **NEAR
        )


def test_a_row_may_be_cut_and_go_on_otherwise(policy_of):
    model = contract_model()
    policy, prompt = policy_of(model), prompts(1, low=140, high=141)[0]
    first = ask(policy, prompt)
    again = ask(policy, [], fresh=False, keep=len(prompt), seed=5)
    assert again.ids == ask(policy, prompt, key=1, seed=5).ids != first.ids
    cut = ask(policy, [9, 10], fresh=False, keep=33)
    assert cut.logps == pytest.approx(full_logps(model, [*prompt[:33], 9, 10], cut.ids), **NEAR)
    on = ask(policy, [11], fresh=False)
    row = [*prompt[:33], 9, 10, *cut.ids, 11]
    assert on.logps == pytest.approx(full_logps(model, row, on.ids), **NEAR)
    with pytest.raises(PolicyError, match="keeps 300 tokens of the"):
        ask(policy, [4], fresh=False, keep=300)


def test_fresh_forgets_the_row(policy_of):
    model = contract_model()
    policy = policy_of(model)
    ask(policy, prompts(1)[0])
    prompt = prompts(1, seed=1)[0]
    generation = ask(policy, prompt)
    assert generation.logps == pytest.approx(full_logps(model, prompt, generation.ids), **NEAR)


def test_finish_says_why_a_response_ended(policy_of):
    policy = policy_of(contract_model())
    requests = [Request(i, ids, True, i, 40) for i, ids in enumerate(prompts(40))]
    generations = policy.generate(requests, Sampling())
    for generation in generations:
        assert STOP not in generation.ids[:-1]
        assert (generation.ids[-1] == STOP) == (generation.finish == "stop")
        assert generation.finish == "stop" or len(generation.ids) == 40
        assert len(generation.ids) == len(generation.logps)
    assert {generation.finish for generation in generations} == {"stop", "length"}


def test_the_window_cuts_a_response(policy_of):
    policy = policy_of(contract_model())
    requests = [Request(i, [5] * (WINDOW - 5), True, i, 30) for i in range(20)]
    cut = [g for g in policy.generate(requests, Sampling()) if g.finish == "length"]
    assert cut and {len(g.ids) for g in cut} == {5}


def test_greedy_takes_the_most_likely_token(policy_of):
    model = contract_model()
    policy, prompt = policy_of(model), prompts(1, high=40)[0]
    generation = ask(policy, prompt, temperature=0.0)
    assert generation.ids == logits_of(model, prompt, generation.ids).argmax(dim=-1).tolist()
    assert generation.logps == [0.0] * len(generation.ids)


@pytest.mark.parametrize("temperature", [0.7, 0.0])
@pytest.mark.parametrize("top", [3, VOCAB + 2])
def test_entropy_and_candidates_are_those_of_the_distribution(policy_of, temperature, top):
    model = contract_model()
    policy, prompt = policy_of(model), prompts(1)[0]
    generation = policy.generate([Request(0, prompt, True, 0, 9)], Sampling(temperature, top=top))[0]
    logits_NV = logits_of(model, prompt, generation.ids)
    logp_NV = torch.log_softmax(logits_NV / (temperature or 1.0), dim=-1)
    ranked_NV = logp_NV.sort(dim=-1, descending=True).values
    for signal_K, entropy, ranked_V in zip(
        generation.signals, (-logp_NV.exp() * logp_NV).sum(-1).tolist(), ranked_NV.tolist(), strict=True
    ):
        assert signal_K[0] == pytest.approx(entropy, **NEAR)
        assert signal_K[1:] == pytest.approx((ranked_V + [ranked_V[-1]] * 2)[:top], abs=1e-3)
    if temperature:
        assert generation.logps == pytest.approx(full_logps(model, prompt, generation.ids, 0.7), **NEAR)
    assert ask(policy, prompt).signals is None


def test_prompts_that_come_one_by_one_are_answered_as_in_a_batch(policy_of):
    policy = policy_of(contract_model())
    requests = [Request(i, ids, True, i, 15) for i, ids in enumerate(prompts(24, high=150))]
    batch = policy.generate(requests, Sampling(0.7))
    found = {}
    for first in range(0, len(requests), 5):
        policy.start(requests[first : first + 5], Sampling(0.7))
        found.update(policy.advance())
        found.update(policy.advance())
    found.update(until_ended(policy, len(requests) - len(found)))
    assert [found[request.key].ids for request in requests] == [g.ids for g in batch]
    for key, generation in enumerate(batch):
        assert found[key].logps == pytest.approx(generation.logps, **NEAR)
    assert policy.advance() == []


def test_a_response_given_up_leaves_the_others_alone(policy_of):
    policy = policy_of(contract_model())
    requests = [Request(i, ids, True, i, 30) for i, ids in enumerate(prompts(2 * PARALLEL))]
    expected = policy.generate(requests, Sampling())
    policy.start(requests, Sampling())
    early = dict(policy.advance())
    given_up = [key for key in (0, 7, 2 * PARALLEL - 1) if key not in early]  # in flight, and one that waits
    for key in given_up:
        policy.release(key)
    found = early | until_ended(policy, 2 * PARALLEL - len(given_up) - len(early))
    assert set(found) == set(range(2 * PARALLEL)) - set(given_up)
    for key, generation in found.items():
        assert generation.ids == expected[key].ids
    with pytest.raises(PolicyError, match="unknown and its request not fresh"):
        ask(policy, [5], key=given_up[0], fresh=False)
    assert ask(policy, requests[0].ids, seed=0, limit=30).ids == expected[0].ids
    policy.release(12345)


def test_nothing_changes_under_responses_in_flight(policy_of):
    model = contract_model()
    policy = policy_of(model)
    request = Request(0, [5, 6], True, 0, 30)
    expected = policy.generate([request], Sampling())[0]
    policy.start([request], Sampling())
    for forbidden, message in (
        (lambda: policy.load_weights(model.named_parameters(), 1), "in flight"),
        (policy.sleep, "in flight"),
        (lambda: policy.generate([Request(1, [5], True, 0, 5)], Sampling()), "in flight"),
        (lambda: policy.start([Request(1, [5], True, 0, 5)], Sampling(0.5)), "in flight"),
        (lambda: policy.start([request], Sampling()), "same key"),
    ):
        with pytest.raises(PolicyError, match=message):
            forbidden()
    assert until_ended(policy, 1)[0].ids == expected.ids


def test_weights_are_those_loaded_last_and_nobody_elses(policy_of):
    model, prompt = contract_model(), prompts(1)[0]
    policy = policy_of(model)
    before = ask(policy, prompt)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.3)
    assert ask(policy, prompt).logps == pytest.approx(before.logps, **NEAR)
    policy.sleep()
    policy.load_weights(model.to(torch.float64).state_dict().items(), version=7)
    assert policy.version == 7
    after = ask(policy, prompt)
    assert after.logps == pytest.approx(full_logps(model.float(), prompt, after.ids), **NEAR)
    assert after.logps != pytest.approx(before.logps, abs=0.1)
