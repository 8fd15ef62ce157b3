"""Sampler against learner: weights, losses and metrics worked out by hand."""

import math

import numpy as np
import pytest
import torch

from agent.types import Trajectory
from rl.learner.loss import LossOptions, policy_loss, truncated_weight
from rl.learner.mismatch import capped_share, mismatch_metrics, without_mismatched
from rl.rows.assemble import TokenRow
from rl.tracking.metrics import describe, staleness
from tests.rl.helpers import step

TIS, MASK, RECOMPUTE = (LossOptions(mismatch=kind) for kind in ("tis", "mask", "recompute"))


def row(sampled, spans):
    length = 1 + spans[-1][1]
    return TokenRow(np.arange(length, dtype=np.int32), spans, np.array(sampled, dtype=np.float32), 0)


def test_weights_by_hand():
    sampled = torch.log(torch.tensor([0.2, 0.2, 0.2, 0.2], dtype=torch.float64))
    old = torch.log(torch.tensor([0.2, 0.1, 0.3, 0.9], dtype=torch.float64))
    assert truncated_weight(old, sampled, 2.0).tolist() == pytest.approx([1.0, 0.5, 1.5, 2.0])


def test_the_truncated_loss_by_hand():
    """now / old = 1.5 is clipped at 1.2 for A = 2; old / sampled = 1.5 weighs it: −2·1.2·1.5 = −3.6."""
    now, old, sampled = (torch.log(torch.tensor([p], dtype=torch.float64)) for p in (0.45, 0.3, 0.2))
    args = sampled, torch.tensor([2.0], dtype=torch.float64), torch.zeros(1, dtype=torch.int64)
    terms = policy_loss(now, *args, TIS, old)
    assert terms.loss_T.item() == pytest.approx(-3.6)
    assert terms.ratio_T.item() == pytest.approx(1.5) and terms.clipped_T.item()
    recomputed = policy_loss(now, *args, RECOMPUTE, old)
    assert recomputed.loss_T.item() == pytest.approx(-2.4) and recomputed.ratio_T.item() == pytest.approx(1.5)
    assert policy_loss(now, *args, LossOptions()).ratio_T.item() == pytest.approx(2.25)
    capped = policy_loss(now, *args, LossOptions(mismatch="tis", mismatch_cap=1.25), old)
    assert capped.loss_T.item() == pytest.approx(-2 * 1.2 * 1.25)


def test_metrics_by_hand():
    """d = log 2 and −log 2: k3 is 2 − log 2 − 1 and ½ + log 2 − 1, their mean ¼."""
    found = mismatch_metrics(
        [row([-1.0, -1.0], ((1, 3, 0),))], [np.array([-1.0, -1.0]) + [math.log(2), -math.log(2)]]
    )
    assert found == {
        "train/mismatch_mean": pytest.approx(math.log(2)),
        "train/mismatch_kl": pytest.approx(0.25),
        "train/mismatch_ratio_max": pytest.approx(2.0),
    }
    assert mismatch_metrics([], []) == {}
    far = mismatch_metrics([row([-1.0], ((1, 2, 0),))], [np.array([-500.0])])
    assert all(math.isfinite(value) for value in far.values())
    old = [np.log([2.1, 1.9, 0.1], dtype=np.float32)]
    assert capped_share([row([0.0] * 3, ((1, 4, 0),))], old, 2.0) == pytest.approx(1 / 3)


def test_which_responses_are_left_out():
    """Response 1 is one token too high, response 3 (two spans: some of it was forced) one too low."""
    spans = ((1, 3, 0), (4, 6, 1), (7, 8, 2), (9, 10, 3), (11, 12, 3))
    one = row([-1.0] * 7, spans)
    old = np.full(7, -1.0, dtype=np.float32)
    old[3] += math.log(2.1)
    old[4] += math.log(1.9)
    old[6] -= math.log(2.1)
    (kept,), share = without_mismatched([one], [old], cap=2.0)
    assert share == 2 / 4
    assert kept.spans == ((1, 3, 0), (7, 8, 2))
    assert kept.logp_sampled.tolist() == [-1.0] * 3 and kept.ids is one.ids
    assert without_mismatched([one], [old], cap=2.2) == ([one], 0.0)
    assert without_mismatched([one], [old + 1.0], cap=2.0) == ([], 1.0)


@pytest.mark.parametrize("changes", [{"mismatch": "is"}, {"mismatch_cap": 1.0}, {"mismatch_cap": math.nan}])
def test_refusals(changes):
    with pytest.raises(ValueError, match="mismatch"):
        LossOptions(**changes)


def test_staleness_by_hand():
    def aged(*versions):
        steps = [step(t, [1], [2], fresh=t == 0, policy_version=v) for t, v in enumerate(versions)]
        return Trajectory("task", "look", "look", 0, 0, 0, steps)

    assert staleness([[aged(3, 3)], [aged(3)]], 3) == {"train/stale_steps": 0.0, "train/staleness_max": 0.0}
    found = staleness([[aged(3, 2)], [aged(1, 3)]], 3)
    assert found == {"train/stale_steps": 0.5, "train/staleness_max": 2.0}
    assert all(describe(name) for name in found)
    with pytest.raises(ValueError, match="version 4 of the weights, but the learner has only come to 3"):
        staleness([[aged(4)]], 3)
    with pytest.raises(ValueError, match="no trajectories"):
        staleness([[]], 3)
