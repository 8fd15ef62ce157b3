"""A small model, random groups, and their rows as the model itself would have sampled them."""

import numpy as np
import pytest

from rl.rows.assemble import step_table
from tests.rl.helpers import VOCAB, random_groups, score_with
from tests.toy import tiny_model


@pytest.fixture(scope="module")
def model():
    return tiny_model(VOCAB, std=0.3)


@pytest.fixture(scope="module")
def groups():
    return random_groups(groups=3, size=4)


@pytest.fixture(scope="module")
def rows(model, groups):
    return score_with(model, groups)


@pytest.fixture(scope="module")
def advantage(groups):
    return np.random.default_rng(1).normal(size=len(step_table(groups)))
