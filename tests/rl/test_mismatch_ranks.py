"""Scoring passes shared by real processes under ZeRO-3: the same numbers and weights as one process."""

import numpy as np
import pytest

from bench.ranks import on_ranks
from rl.learner.engine import OptimOptions
from rl.learner.learner import BatchOptions, Learner
from rl.learner.loss import LossOptions
from rl.learner.reference import FrozenCopy
from rl.learner.schedule import LearningRate
from rl.learner.torch_engine import TorchEngine
from rl.rows.assemble import step_table
from tests.rl.helpers import VOCAB, random_groups, score_with
from tests.toy import tiny_model

pytest.importorskip("deepspeed")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::FutureWarning")]


def make(engine, mismatch="tis", cap=1.02):
    return Learner(
        engine,
        loss=LossOptions(kl_coef=0.05, mismatch=mismatch, mismatch_cap=cap),
        batches=BatchOptions(minibatches=2, token_budget=150),
        lr=LearningRate(1e-3),
        temperature=1.0,
        seed=0,
        reference=FrozenCopy(tiny_model(VOCAB, std=0.3, seed=9)),
    )


def made_batch():
    """Rows and advantages; scored by the torch engine, which is one process's."""
    groups = random_groups(groups=3, size=4)
    rows = score_with(tiny_model(VOCAB, std=0.3), groups)
    return rows, np.random.default_rng(1).normal(size=len(step_table(groups)))


def play(engine, rows, advantage):
    """Two updates; returns the metrics of the last, log-probabilities after it, and the weights."""
    left = make(engine, "mask", cap=1.1).prepare(rows)  # what credit is told of who votes
    learner = make(engine)
    for update in (1, 2):
        metrics = learner.update(rows, advantage, update=update)
    logps = learner.logps(rows)
    metrics["left"] = [row.spans for row in left.rows]
    return metrics, logps, {name: tensor.clone().numpy() for name, tensor in learner.named_weights()}


def play_sharded(rows, advantage):
    from rl.learner.deepspeed_engine import DeepSpeedEngine

    engine = DeepSpeedEngine(tiny_model(VOCAB, std=0.3), OptimOptions(), zero_stage=3)
    return play(engine, rows, advantage)


def test_two_ranks_score_and_correct_like_one():
    batch = made_batch()
    expected, alone, weights = play(TorchEngine(tiny_model(VOCAB, std=0.3), OptimOptions()), *batch)
    assert 0 < expected["train/mismatch_capped"] < 1 and expected["train/kl_ref"] > 0.01
    answers = on_ranks(2, play_sharded, *batch)
    assert 0 < sum(map(len, expected["left"])) < sum(len(row.spans) for row in batch[0])
    assert answers[0][0]["left"] == answers[1][0]["left"] == expected["left"]
    for metrics, logps, got in answers:
        for name in ("train/loss", "train/kl_ref", "train/mismatch_kl", "train/mismatch_capped"):
            assert metrics[name] == pytest.approx(expected[name], abs=1e-6), name
        for one, other in zip(logps, alone, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-4)  # after four optimiser steps
        for name, values in weights.items():
            # Weights moved by 4e-3; where a gradient is nearly 0, AdamW makes a step of its rounding.
            apart = np.abs(got[name] - values)
            assert apart.max() < 2e-4 and apart.mean() < 1e-6, name
    assert all(np.array_equal(a, b) for a, b in zip(answers[0][1], answers[1][1], strict=True))
