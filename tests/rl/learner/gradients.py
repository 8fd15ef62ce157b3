"""Gradients of one optimiser step, and whether they are the slopes of the loss."""

import pytest
import torch

from rl.learner.learner import BatchOptions
from tests.rl.helpers import VOCAB, double_model, make_learner


def one_step(rows, advantage, loss, *, aux=None, token_budget=None):
    """The gradient in float64, flat, taken before the optimiser sees it, and what was reported."""
    trained = double_model(VOCAB)
    reference = double_model(VOCAB, seed=9) if loss.kl_coef else None
    batches = {} if token_budget is None else {"batches": BatchOptions(token_budget=token_budget)}
    learner = make_learner(trained, loss=loss, reference=reference, **batches)
    grads = []

    def keep(lr):
        grads.extend(p.grad.flatten().clone() for p in trained.parameters())
        return 1.0

    learner.engine.step = keep
    metrics = learner.update(rows, advantage, update=1, aux=aux)
    return torch.cat(grads), metrics


def check_slopes(trained, loss_at, *, every, h=1e-5):
    """Compares the largest entry of every so many parameters' gradients with a central difference.

    `loss_at()` computes the loss of the weights of now and adds to their gradients.
    """
    loss_at()
    for name, parameter in list(trained.named_parameters())[::every]:
        grad, flat = parameter.grad.flatten(), parameter.data.view(-1)
        i = int(grad.abs().argmax())
        analytic = grad[i].item()
        flat[i] += h
        above = loss_at()
        flat[i] -= 2 * h
        below = loss_at()
        flat[i] += h
        trained.zero_grad()
        loss_at()
        assert analytic == pytest.approx((above - below) / (2 * h), rel=1e-5), name
