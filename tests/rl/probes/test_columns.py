"""Token columns against forward passes made by hand: values, order, contexts, and what has none."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from agent.policies.torch_policy import TorchPolicy
from agent.policy import Sampling
from agent.rollout.rollout import rollout
from rl.learner.forward import measure_rows
from rl.learner.reference import FrozenCopy
from rl.rows.assemble import step_table, token_rows
from rl.rows.privileged import PEER_END, PEER_OPENING, PEER_STEP, Privileged, hindsight_rows, peer_rows
from tests.toy import (
    ToyEnv,
    toy_tasks,
)


def walked(groups):
    """(trajectory, step, ids before the response, response ids) in the order (group, index, t)."""
    for tr in sorted((tr for group in groups for tr in group), key=lambda tr: (tr.group, tr.index)):
        ids = []
        for step in tr.steps:
            ids = [*([] if step.fresh else ids), *step.prompt_ids]
            yield tr, step, ids, step.response_ids
            ids = [*ids, *step.response_ids]


def direct(model, before, response, temperature=1.0):
    """(log-probabilities, entropies) of a response by one plain forward pass and a softmax in float64."""
    logits = model(torch.tensor([[*before, *response]])).logits[0].detach().double() / temperature
    prob = torch.softmax(logits[len(before) - 1 : -1], dim=-1).numpy()
    logp = np.log(prob[np.arange(len(response)), response])
    return logp, -(prob * np.log(prob)).sum(-1)


def test_entropy_is_that_of_a_softmax_with_the_temperature(world):
    columns, metrics = world.columns("entropy", temperature=0.7)
    expected = [
        direct(world.model, before, response, 0.7)[1] for _, _, before, response in walked(world.groups)
    ]
    np.testing.assert_allclose(columns["entropy"], np.concatenate(expected), atol=2e-4)
    assert columns["entropy"].dtype == np.float64
    assert metrics["probe/entropy/tokens"] == sum(len(r.ids) for r in token_rows(world.groups))
    assert metrics["probe/entropy/seconds"] > 0


def test_columns_lie_as_the_step_table_counts_whatever_the_order_of_groups(world):
    cut = [[replace(tr, steps=[*tr.steps]) for tr in group] for group in world.groups]
    cut[0][1].steps[0] = replace(cut[0][1].steps[0], finish="length")  # masked in the loss, not here
    mixed = [list(reversed(group)) for group in reversed(cut)]
    names = ("logp_sampled", "entropy", "logp_ref", "logp_peer", "logp_hindsight")
    columns, _ = world.columns(*names, reference=FrozenCopy(world.module.model), groups=mixed)
    again, _ = world.columns(*names, reference=FrozenCopy(world.module.model))
    table = replace(step_table(mixed), tokens=columns)
    for row, (tr, step, before, response) in enumerate(walked(mixed)):
        own = slice(table.offsets[row], table.offsets[row + 1])
        assert (table.group[row], table.t[row], table.action[row]) == (tr.group, step.t, step.action)
        np.testing.assert_array_equal(columns["logp_sampled"][own], step.logp_sampled)
        np.testing.assert_allclose(
            columns["logp_ref"][own], direct(world.model, before, response)[0], atol=2e-4
        )
    for name in names:
        np.testing.assert_allclose(columns[name], again[name], atol=1e-5)


def test_under_the_reference_that_sampled_logp_ref_is_logp_sampled(world):
    window = world.prompts.window
    policy = TorchPolicy(world.model, world.prompts.turns.stop_ids, window=window, max_parallel=8)
    prompts = replace(world.prompts, max_response_tokens=12)
    groups = rollout(
        policy,
        Sampling(1.3),
        lambda: ToyEnv(max_steps=3),
        toy_tasks(2),
        group_size=3,
        prompts=prompts,
        max_parallel=6,
        seed=0,
    )
    columns, _ = world.columns(
        "logp_sampled", "logp_ref", temperature=1.3, reference=FrozenCopy(world.module.model), groups=groups
    )
    np.testing.assert_allclose(columns["logp_ref"], columns["logp_sampled"], atol=1e-4)


def by_hand(world, context, before, response):
    """The response scored with the ids of `context` at the beginning of the first user message."""
    opening = world.tokenizer.encode("<|im_start|>user\n" if world.prompts.form == "stepwise" else "<|user|>")
    at = next(i for i in range(len(before)) if before[i : i + len(opening)] == opening) + len(opening)
    return direct(world.model, [*before[:at], *context, *before[at:]], response)[0]


def peer_context(world, peer, first=0):
    texts = [PEER_STEP.format(observation=s.observation.text, action=s.action) for s in peer.steps[first:]]
    return [i for text in (PEER_OPENING, *texts, PEER_END) for i in world.tokenizer.encode(text)]


@pytest.mark.parametrize("which", ["shortest", "longest"])
def test_logp_peer_is_the_response_after_a_successful_siblings_text(world, which):
    columns, metrics = world.columns("logp_peer", peer=which)
    expected = []
    for tr, _, before, response in walked(world.groups):
        group = next(group for group in world.groups if tr in group)
        others = sorted((o for o in group if o.success and o is not tr), key=lambda o: o.index)
        pick = {"shortest": min, "longest": max}[which]
        peer = pick(others, key=lambda o: len(o.steps), default=None)
        expected.append(
            np.full(len(response), np.nan)
            if peer is None
            else by_hand(world, peer_context(world, peer), before, response)
        )
    expected = np.concatenate(expected)
    np.testing.assert_allclose(columns["logp_peer"], expected, atol=2e-4)
    assert metrics["probe/logp_peer/without"] == pytest.approx(np.isnan(expected).mean())
    assert (metrics["probe/logp_peer/trimmed"], metrics["probe/logp_peer/no_room"]) == (0, 0)


def test_logp_hindsight_is_the_response_after_its_own_end(world):
    columns, _ = world.columns("logp_hindsight")
    expected = []
    for tr, _, before, response in walked(world.groups):
        ends = "ends in success" if tr.success else "ends without success"
        last = tr.steps[-1].next_observation.text
        known = f"Known of this attempt: it {ends}, and the last observation is:\n{last}\n"
        context = world.tokenizer.encode(known) + world.tokenizer.encode("End of what is known.\n\n")
        expected.append(by_hand(world, context, before, response))
    np.testing.assert_allclose(columns["logp_hindsight"], np.concatenate(expected), atol=2e-4)


def test_a_teacher_with_no_more_to_read_has_gap_0_though_the_weights_have_moved(world, monkeypatch):
    """The context is empty, the sampler's weights are older than the learner's: that is no gap."""
    monkeypatch.setattr(
        "rl.probes.probes.hindsight_rows", lambda rows, *_, **__: Privileged(list(rows), 0, 0)
    )
    rows = token_rows(world.groups, mask_truncated=False)
    said = [logp for logp, _ in measure_rows(world.module, rows, temperature=0.8, token_budget=4096)]
    older = [logp + np.float32(0.015) for logp in said]  # what the weights of before said
    pieces = iter(np.concatenate(older).tolist())
    groups = [
        [
            replace(
                tr, steps=[replace(s, logp_sampled=[next(pieces) for _ in s.response_ids]) for s in tr.steps]
            )
            for tr in sorted(group, key=lambda tr: tr.index)
        ]
        for group in sorted(world.groups, key=lambda group: group[0].group)
    ]
    names = ("logp_sampled", "logp_hindsight")
    recorded, metrics = world.columns(*names, groups=groups, temperature=0.8)
    gap = recorded["logp_hindsight"] - recorded["logp_sampled"]  # the fault: an older policy's
    assert np.abs(gap).max() > 0.01 and "probe/logp_sampled/tokens" not in metrics
    for changes in ({"version": 1}, {"exact_sampler": False}):
        columns, metrics = world.columns(*names, groups=groups, temperature=0.8, **changes)
        np.testing.assert_array_equal(columns["logp_hindsight"] - columns["logp_sampled"], 0.0)
        np.testing.assert_allclose(columns["logp_sampled"], np.concatenate(said), atol=1e-5)
        assert metrics["probe/logp_sampled/tokens"] == sum(len(row.ids) for row in rows)


def won(groups, *numbers):
    """The first group with only these members successful."""
    return [[replace(tr, success=tr.index in numbers) for tr in groups[0]]]


def test_without_another_success_there_is_nan(world):
    lone = won(world.groups, 2)
    columns, metrics = world.columns("logp_peer", groups=lone)
    row = np.concatenate([np.full(len(s.response_ids), tr.index) for tr, s, _, _ in walked(lone)])
    np.testing.assert_array_equal(np.isnan(columns["logp_peer"]), row == 2)
    assert metrics["probe/logp_peer/without"] == pytest.approx((row == 2).mean())
    nobody, metrics = world.columns("logp_peer", groups=won(world.groups))
    assert np.isnan(nobody["logp_peer"]).all()
    assert (metrics["probe/logp_peer/tokens"], metrics["probe/logp_peer/no_room"]) == (0, 0)
    assert world.columns("logp_peer", "entropy", groups=[])[0]["logp_peer"].shape == (0,)


def test_a_random_peer_is_seeded_never_oneself_and_takes_every_other(world):
    groups = won(world.groups, 0, 1, 2)
    rows = token_rows(groups)

    def told(seed):
        told = peer_rows(rows, groups, world.prompts, window=3000, which="random", seed=seed).rows
        return [next(r.ids.tolist() for r in told if r.trajectory == number) for number in range(4)]

    assert told(1) == told(1)
    contexts = [peer_context(world, tr) for tr in groups[0]]
    seen = {number: set() for number in range(4)}
    for seed in range(40):
        for number, ids in enumerate(told(seed)):
            text = world.tokenizer.decode(ids)
            seen[number] |= {k for k, c in enumerate(contexts) if world.tokenizer.decode(c) in text}
    distinct = {world.tokenizer.decode(context) for context in contexts[:3]}
    assert len(distinct) == 3, "the test needs three different successes"
    assert seen == {0: {1, 2}, 1: {0, 2}, 2: {0, 1}, 3: {0, 1, 2}}


def test_a_peers_text_loses_whole_first_steps_to_the_window_then_all(world):
    groups = won(world.groups, 0)
    row = next(row for row in token_rows(groups) if row.trajectory == 1)
    peer = groups[0][0]
    assert len(peer.steps) > 1
    for first in range(len(peer.steps)):
        context = peer_context(world, peer, first)
        for slack in (0, 1):
            told = peer_rows(
                [row],
                groups,
                world.prompts,
                window=len(row.ids) + len(context) + slack,
                which="random",
                seed=0,
            )
            assert len(told.rows[0].ids) == len(row.ids) + len(context)
            assert world.tokenizer.decode(context) in world.tokenizer.decode(told.rows[0].ids)
            assert (told.trimmed, told.no_room) == (int(first > 0), 0)
    window = len(row.ids) + len(context) - 1
    told = peer_rows([row], groups, world.prompts, window=window, which="random", seed=0)
    assert (told.rows, told.trimmed, told.no_room) == ([None], 0, 1)
    columns, metrics = world.columns("logp_peer", groups=groups, window=40)
    assert np.isnan(columns["logp_peer"]).all()
    own = [r for r in token_rows(groups) if r.trajectory != 0]
    assert metrics["probe/logp_peer/no_room"] == len(own)


def test_responses_and_their_order_survive_the_context(world):
    rows = token_rows(world.groups)
    for told in hindsight_rows(rows, world.groups, world.prompts, window=3000).rows:
        row = rows.pop(0)
        assert [told.ids[a:b].tolist() for a, b, _ in told.spans] == [
            row.ids[a:b].tolist() for a, b, _ in row.spans
        ]
        assert [step for _, _, step in told.spans] == [step for _, _, step in row.spans]
        assert len(told.ids) > len(row.ids) and told.ids[0] == row.ids[0]


def test_measuring_does_not_depend_on_the_batch(world):
    rows = token_rows(world.groups)
    one = measure_rows(world.module, rows, temperature=0.9, token_budget=1)
    many = measure_rows(world.module, rows[::-1], temperature=0.9, token_budget=100_000)[::-1]
    for (logp, entropy), (logp_too, entropy_too) in zip(one, many, strict=True):
        np.testing.assert_allclose(logp, logp_too, atol=1e-4)
        np.testing.assert_allclose(entropy, entropy_too, atol=1e-4)
