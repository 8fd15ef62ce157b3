"""Shared fixtures."""

import pytest

from tests.agent.backends import BACKENDS


@pytest.fixture(
    scope="module",
    params=[pytest.param(made, id=name, marks=marks) for name, (made, marks) in BACKENDS.items()],
)
def policy_of(request):
    """Returns a policy with the weights of a model."""
    yield from request.param()
