"""Laws of every aggregation under both losses: what a batch repeats, splits or packs changes no gradient."""

from dataclasses import replace
from itertools import count
from typing import get_args

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.types import Trajectory
from rl.learner.aggregation import Aggregation
from rl.learner.learner import BatchOptions
from rl.learner.loss import LossOptions, policy_loss
from rl.learner.pack import collate, loss_rows
from rl.rows.assemble import TokenRow, token_rows
from tests.rl.helpers import VOCAB, double_model, make_learner, random_groups, score_with, step

AGGREGATIONS = get_args(Aggregation)
FAST = settings(max_examples=12, deadline=None, derandomize=True)
EXACT = {"atol": 1e-7, "rtol": 1e-5}  # weights and advantages travel as float32
THETA = torch.linspace(-1.0, 1.5, VOCAB, dtype=torch.float64)

every_loss = pytest.mark.parametrize(
    "options",
    [
        pytest.param(
            LossOptions(kind=kind, aggregation=aggregation, norm_length=7, clip_low=0.5, clip_high=0.5),
            id=f"{kind} {aggregation}",
        )
        for kind in ("ppo", "gspo")
        for aggregation in AGGREGATIONS
    ],
)

responses = st.lists(st.integers(1, 4), min_size=1, max_size=3)  # lengths of a response's pieces
batches = st.lists(  # trajectories, of rows, of responses
    st.lists(st.lists(responses, min_size=1, max_size=3), min_size=1, max_size=2), min_size=1, max_size=4
)


def rows_of(trajectories, *, gap=2, seed=0):
    """Token rows of them, `gap` forced tokens between the pieces of a response; and an advantage per step."""
    rng, numbers, rows = np.random.default_rng(seed), count(), []
    for number, trajectory in enumerate(trajectories):
        for row in trajectory:
            ids, spans, logps = [1], [], []
            for lengths in row:
                step_row = next(numbers)
                for place, length in enumerate(lengths):
                    ids += [2] * (gap if place else 1)
                    spans.append((len(ids), len(ids) + length, step_row))
                    ids += rng.integers(3, VOCAB, length).tolist()
                    logps += rng.normal(-3.5, 0.3, length).tolist()
            rows.append(TokenRow(np.array(ids, np.int32), tuple(spans), np.array(logps, np.float32), number))
    return rows, rng.normal(size=next(numbers))


def gradient(rows, advantage, options, parts=1):
    """Of the loss of one optimiser step in `parts` micro-batches, for a policy that knows no context."""
    theta = THETA.clone().requires_grad_()
    prepared, _ = loss_rows(rows, advantage, options)
    for numbers in np.array_split(np.arange(len(prepared)), min(parts, len(prepared))):
        batch = collate([prepared[i] for i in numbers], torch.device("cpu"))
        logp_T = theta.log_softmax(-1)[batch.target_T]
        terms = policy_loss(logp_T, batch.logp_sampled_T, batch.advantage_T, batch.seq_T, options)
        (batch.weight_T * terms.loss_T).sum().backward()
    return theta.grad


@every_loss
@FAST
@given(trajectories=batches, times=st.integers(2, 5))
def test_repeating_all_rows_changes_nothing(options, trajectories, times):
    rows, advantage = rows_of(trajectories)
    once = gradient(rows, advantage, options)
    torch.testing.assert_close(gradient(rows * times, advantage, options), once, **EXACT)
    again = [
        replace(
            row,
            trajectory=row.trajectory + k * len(trajectories),
            spans=tuple((start, end, n + k * len(advantage)) for start, end, n in row.spans),
        )
        for k in range(times)
        for row in rows
    ]
    torch.testing.assert_close(gradient(again, np.tile(advantage, times), options), once, **EXACT)


@every_loss
@FAST
@given(trajectories=batches)
def test_a_response_in_pieces_is_one_sequence(options, trajectories):
    whole = [[[[sum(lengths)] for lengths in row] for row in trajectory] for trajectory in trajectories]
    (split, advantage), (joined, _) = rows_of(trajectories), rows_of(whole)
    targets = [row.ids[start:end].tolist() for row in split for start, end, _ in row.spans]
    logps = np.concatenate([row.logp_sampled for row in split])
    for row in joined:  # the same tokens under the loss, without what was put between them
        for start, end, _ in row.spans:
            taken = []
            while len(taken) < end - start:
                taken += targets.pop(0)
            row.ids[start:end] = taken
        row.logp_sampled[:], logps = logps[: len(row.logp_sampled)], logps[len(row.logp_sampled) :]
    torch.testing.assert_close(
        gradient(split, advantage, options), gradient(joined, advantage, options), **EXACT
    )


@every_loss
@FAST
@given(trajectories=batches, parts=st.integers(2, 6), shuffle=st.randoms(use_true_random=False))
def test_neither_micro_batches_nor_row_order_matter(options, trajectories, parts, shuffle):
    rows, advantage = rows_of(trajectories)
    mixed = shuffle.sample(rows, len(rows))
    torch.testing.assert_close(
        gradient(mixed, advantage, options, parts), gradient(rows, advantage, options), **EXACT
    )


@every_loss
@FAST
@given(trajectories=batches, factor=st.floats(0.1, 50.0))
def test_the_gradient_scales_with_the_advantage_and_with_nothing_else(options, trajectories, factor):
    rows, advantage = rows_of(trajectories)
    once = gradient(rows, advantage, options)
    scaled = gradient(rows, factor * advantage, options)
    torch.testing.assert_close(scaled, factor * once, atol=1e-6 * factor, rtol=1e-5)
    longer = gradient(rows, advantage, replace(options, norm_length=21))
    shrinks = options.aggregation == "seq-mean-token-sum-norm"
    torch.testing.assert_close(longer, once / 3 if shrinks else once, **EXACT)


@every_loss
def test_two_equal_steps_weigh_the_same_though_one_is_in_pieces(options):
    rows, _ = rows_of([[[[4, 4]]], [[[8]]]])
    split, joined = loss_rows(rows, np.ones(2), options)[0]
    assert split.lengths == joined.lengths == (8,)
    assert split.weight_T.tolist() == joined.weight_T.tolist()
    expected = {
        "token-mean": 1 / 16,
        "seq-mean-token-sum": 1 / 2,
        "seq-mean-token-mean": 1 / 16,
        "seq-mean-token-sum-norm": 1 / 14,
        "traj-mean-token-mean": 1 / 16,
    }
    assert split.weight_T[0] == pytest.approx(expected[options.aggregation])


def test_a_forced_text_inside_a_response_leaves_one_ratio():
    """GSPO's ratio of a step is over all that was sampled of it: mean of 0.3 and −0.1 (twice each)."""
    steps = [step(0, [1, 2], [3, 4, 9, 5, 6], fresh=True, forced=(2, 3))]
    (row,) = token_rows([[Trajectory("task", "look", "look", 0, 0, 0, steps)]])
    assert len(row.spans) == 2
    (prepared,), _ = loss_rows([row], np.ones(1), LossOptions(kind="gspo"))
    batch = collate([prepared], torch.device("cpu"))
    now = batch.logp_sampled_T + torch.tensor([0.3, 0.3, -0.1, -0.1])
    terms = policy_loss(now, batch.logp_sampled_T, batch.advantage_T, batch.seq_T, LossOptions(kind="gspo"))
    assert terms.ratio_T.tolist() == pytest.approx([np.exp(0.1)] * 4)


def test_rows_that_restart_keep_a_step_a_sequence():
    """A trajectory in one row or opened anew at every step: the same steps, the same weights."""
    counts = {}
    for append in (True, False):
        rows = token_rows(random_groups(groups=2, size=3, append=append, seed=4))
        prepared, _ = loss_rows(rows, np.ones(99), LossOptions(aggregation="seq-mean-token-mean"))
        weights = np.concatenate([row.weight_T for row in prepared])
        counts[append] = sorted(n for row in prepared for n in row.lengths)
        assert weights.sum() == pytest.approx(1.0)
    assert counts[True] == counts[False]


@pytest.mark.parametrize(
    ("kind", "aggregation"), [*(("ppo", way) for way in AGGREGATIONS), ("gspo", "seq-mean-token-mean")]
)
def test_the_learners_gradient_is_that_of_a_mean_whatever_the_number_of_rows(kind, aggregation):
    """The whole path, KL and entropy terms too: the norm for 10, 100 and 1,000 rows."""
    rows = score_with(double_model(VOCAB), random_groups(groups=2, size=5))
    assert len(rows) == 10
    advantage = np.random.default_rng(1).normal(size=1 + rows[-1].spans[-1][2])
    loss = LossOptions(kind=kind, aggregation=aggregation, norm_length=6, kl_coef=0.1, entropy_coef=0.01)
    norms = []
    for times in (1, 10, 100):
        learner = make_learner(
            double_model(VOCAB),
            loss=loss,
            reference=double_model(VOCAB, seed=9),
            batches=BatchOptions(token_budget=8192),
        )
        norms.append(learner.update(rows * times, advantage, update=1)["train/grad_norm"])
    assert norms[0] > 1e-3
    assert norms == pytest.approx([norms[0]] * 3, rel=1e-5)
