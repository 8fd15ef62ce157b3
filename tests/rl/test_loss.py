"""The policy losses: reference numbers, hand-worked values, gradients against finite differences."""

import copy
import json
import math

import numpy as np
import pytest
import torch

from rl.learner.aggregation import sequence_weights
from rl.learner.golden_loss import check_golden_case
from rl.learner.kl import kl_estimate
from rl.learner.loss import LossOptions, gspo_loss, policy_loss, ppo_loss

CLIPS = {"clip_low": 0.2, "clip_high": 0.28, "dual_clip": 3.0}


@pytest.fixture(scope="module")
def cases(shared):
    return json.loads((shared / "golden" / "credit" / "policy_loss.json").read_text())["cases"]


def test_reference_numbers(cases):
    assert len(cases) == 65
    failures = {case["case"]: diff for case in cases if (diff := check_golden_case(case))}
    assert not failures


@pytest.mark.parametrize("figure", ["loss", "grad", "clipfrac", "ppo_kl"])
def test_the_reference_check_can_fail(cases, figure):
    case = copy.deepcopy(cases[0])
    wrong = np.asarray(case["policy_loss"]["token-mean"][figure]) + 1e-3
    case["policy_loss"]["token-mean"][figure] = wrong.tolist()
    assert f"token-mean.{figure}" in check_golden_case(case)


def one(ratio: float, advantage: float, **changes) -> float:
    now = torch.tensor([math.log(ratio)], dtype=torch.float64)
    zero, advantages = torch.zeros(1, dtype=torch.float64), torch.tensor([advantage], dtype=torch.float64)
    return ppo_loss(now, zero, advantages, **{**CLIPS, **changes}).loss_T.item()


@pytest.mark.parametrize(
    ("ratio", "advantage", "expected"),
    [
        (1.0, 2.0, -2.0),
        (1.5, 2.0, -2.56),  # clipped above at 1.28
        (0.5, 2.0, -1.0),  # no clip where the loss would fall
        (0.5, -2.0, 1.6),  # clipped below at 0.8
        (2.0, -2.0, 4.0),
        (5.0, -2.0, 6.0),  # dual clip at c = 3
        (5.0, 0.0, 0.0),
    ],
)
def test_ppo_by_hand(ratio, advantage, expected):
    assert one(ratio, advantage) == pytest.approx(expected)


def test_dual_clip_off_and_symmetric_clip():
    assert one(5.0, -2.0, dual_clip=None) == pytest.approx(10.0)
    assert one(1.5, 2.0, clip_high=0.2) == pytest.approx(-2.4)


def test_extreme_ratios_stay_finite():
    now = torch.tensor([-1000.0, 0.0, 0.0], requires_grad=True)
    sampled = torch.tensor([0.0, -1000.0, -1000.0])
    for kind in ("ppo", "gspo"):
        loss = (
            policy_loss(
                now, sampled, torch.tensor([1.0, 1.0, -1.0]), torch.tensor([0, 1, 2]), LossOptions(kind=kind)
            ).loss_T.sum()
            + kl_estimate(now, sampled, "k3").sum()
        )
        (gradient,) = torch.autograd.grad(loss, now)
        assert loss.isfinite() and gradient.isfinite().all()


def test_gspo_gives_one_ratio_a_sequence():
    now, sampled = torch.tensor([-1.0, -2.0, -1.0]), torch.tensor([-1.2, -2.4, -1.0])
    result = gspo_loss(now, sampled, torch.ones(3), torch.tensor([0, 0, 1]), clip_low=0.5, clip_high=0.5)
    assert result.ratio_T.tolist() == pytest.approx([math.exp(0.3), math.exp(0.3), 1.0])


def test_kl_estimators_by_hand():
    now, ref = torch.tensor([-1.0]), torch.tensor([-1.5])
    assert kl_estimate(now, ref, "k1").item() == pytest.approx(0.5)
    assert kl_estimate(ref, now, "k1").item() == pytest.approx(-0.5)
    assert kl_estimate(ref, now, "abs").item() == pytest.approx(0.5)
    assert kl_estimate(now, ref, "k2").item() == pytest.approx(0.125)
    assert kl_estimate(now, ref, "k3").item() == pytest.approx(math.exp(-0.5) + 0.5 - 1)
    assert kl_estimate(torch.tensor([-30.0]), torch.tensor([0.0]), "k3").item() == 10.0
    with pytest.raises(ValueError, match="unknown KL estimator 'k4'"):
        kl_estimate(now, ref, "k4")


@pytest.mark.parametrize(
    ("aggregation", "expected"),
    [
        ("token-mean", [1 / 8, 0, 1 / 8, 1 / 8]),
        ("seq-mean-token-sum", [1 / 3, 0, 1 / 3, 1 / 3]),
        ("seq-mean-token-mean", [1 / 6, 0, 1 / 12, 1 / 6]),
        ("seq-mean-token-sum-norm", [1 / 30, 0, 1 / 30, 1 / 30]),
        ("traj-mean-token-mean", [1 / 12, 0, 1 / 12, 1 / 4]),
    ],
)
def test_weights_by_hand(aggregation, expected):
    owner = np.array([3, 3, 3, 8])
    weights = sequence_weights(np.array([2, 0, 4, 2]), owner, aggregation, norm_length=10)
    assert weights.tolist() == pytest.approx(expected)
    assert not sequence_weights(np.array([0, 0]), owner[:2], aggregation, norm_length=10).any()
    assert not len(sequence_weights(np.array([]), owner[:0], aggregation, norm_length=10))


@pytest.mark.parametrize("kind", ["ppo", "gspo"])
@pytest.mark.parametrize("kl_kind", ["k1", "abs", "k2", "k3"])
def test_gradient_against_finite_differences(kind, kl_kind):
    """Of Σ w (L + β KL) with respect to every logp_now; GSPO's through its stop-gradient form's equal."""
    rng = np.random.default_rng(5)
    sizes, seq = [3, 1, 4], np.repeat([0, 1, 2], [3, 1, 4])
    sampled, ref = rng.normal(-1, 0.3, 8), rng.normal(-1, 0.3, 8)
    advantage = torch.tensor(np.repeat([1.0, -0.7, -2.0], sizes) if kind == "gspo" else rng.normal(size=8))
    options = LossOptions(kind=kind, clip_low=0.15, clip_high=0.25, aggregation="seq-mean-token-mean")
    weights = torch.tensor(sequence_weights(np.array(sizes), np.arange(3), options.aggregation, 1)[seq])

    def value(now: torch.Tensor) -> torch.Tensor:
        loss = policy_loss(now, torch.tensor(sampled), advantage, torch.tensor(seq), options).loss_T
        return (weights * (loss + 0.3 * kl_estimate(now, torch.tensor(ref), kl_kind))).sum()

    now = torch.tensor(sampled + rng.normal(0, 0.1, 8), requires_grad=True)
    (gradient,) = torch.autograd.grad(value(now), now)
    h = 1e-6
    for i in range(8):
        shift = torch.zeros(8, dtype=torch.float64)
        shift[i] = h
        numeric = (value(now.detach() + shift) - value(now.detach() - shift)) / (2 * h)
        assert gradient[i].item() == pytest.approx(numeric.item(), abs=1e-6)


def test_bad_options():
    with pytest.raises(ValueError, match="unknown aggregation 'mean'"):
        LossOptions(aggregation="mean")
    with pytest.raises(ValueError, match="norm_length must be at least 1"):
        LossOptions(norm_length=0)
