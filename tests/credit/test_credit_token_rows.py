"""Advantages per row and per token in one method: never mistaken for each other, whatever the shapes."""

from dataclasses import dataclass

import numpy as np
import pytest

from credit.base import Reweighter
from credit.pipeline import Pipeline
from credit.signals import Estimated, PerToken
from credit.table import StepTable
from tests.credit.stage_cases import SERVICES, columns_of, configurations, with_tokens
from tests.credit.teacher_tables import BASE, run


@pytest.mark.parametrize("method", list(configurations()))
def test_as_many_tokens_as_rows_are_no_reason_to_mistake_one_for_the_other(method):
    """With lengths 2, 0, 1, … the sums are equal; what a method speaks in must not depend on that."""
    columns = with_tokens(
        columns_of([[(True, [("a", "go", True), ("b", "look", True)]), (False, [("a", "go", False)])]])
    )
    per_token = {}
    for lengths in ([2, 0, 1], [1, 1, 1], [0, 3, 0], [2, 2, 3]):
        n = sum(lengths)
        tokens = {name: np.linspace(-2, -1, n) * k for k, name in enumerate(columns["tokens"], start=1)}
        tokens["entropy"] = np.linspace(1, 2, n)
        table = StepTable(**columns | {"length": lengths, "tokens": tokens})
        result = method.run(table, SERVICES, seed=3, step=1)
        per_token[tuple(lengths)] = result.token_advantage is not None
        if result.token_advantage is not None:
            parts = np.split(result.token_advantage, table.offsets[1:-1])
            means = [part.mean() if len(part) else 0.0 for part in parts]
            np.testing.assert_allclose(result.advantage, means, atol=1e-12)
    assert len(set(per_token.values())) == 1, per_token


@pytest.mark.parametrize("lengths", [[2, 0, 1], [1, 1, 1], [0, 1, 2], [2, 1, 2]])
def test_a_chain_of_token_and_row_stages_by_hand(lengths):
    """RLSD speaks per token, ProGPO's coverage and SHARPO per row: A = 5, 5, -5 before, gaps 0.1, 0.2, …"""
    columns = columns_of([[(True, [("a", "go", True), ("b", "look", True)]), (False, [("a", "go", True)])]])
    n = sum(lengths)
    gap, row = 0.1 * np.arange(1, n + 1), np.repeat(np.arange(3), lengths)
    tokens = {"logp_sampled": np.full(n, -1.0), "logp_peer": gap - 1.0, "logp_hindsight": gap - 1.0}
    table = StepTable(**columns | {"length": lengths, "tokens": tokens})
    base = np.array([5.0, 5.0, -5.0])[row]
    sign = np.sign(base)
    rlsd = base * (0.5 + 0.5 * np.clip(np.exp(sign * gap), 0.8, 1.2))
    chain = {**BASE, "rlsd": {"decay": 0}, "sharpo": {"balance": "none", "lam": 1.0}}
    result = run(chain, table)
    mean = [gap[row == k].mean() if (row == k).any() else 0.0 for k in range(3)]
    weight = 2 / (1 + np.exp(-np.array([1, 1, -1]) * mean))
    np.testing.assert_allclose(result.token_advantage, rlsd * weight[row], atol=1e-12)


def test_reinforce_with_a_token_discount_and_as_many_tokens_as_rows():
    """Rows of 2, 0 and 1 tokens: 5, 10 and 0 less their mean 5, over their sample deviation of 5."""
    table = StepTable(
        group=[0, 0, 0],
        trajectory=[0, 1, 2],
        t=[0, 0, 0],
        reward=[10.0, 7.0, 0.0],
        outcome=[10.0, 7.0, 0.0],
        success=[1, 0, 0],
        anchor=["a", "a", "a"],
        length=[2, 0, 1],
    )
    result = Pipeline.from_config({"reinforce_pp": {"gamma": 0.5, "eps": 0.0}}).run(table)
    np.testing.assert_allclose(result.token_advantage, [0.0, 1.0, -1.0], atol=1e-15)
    np.testing.assert_allclose(result.advantage, [0.5, 0.0, -1.0], atol=1e-15)


def test_an_array_per_token_is_refused_with_the_way_out():
    @dataclass(frozen=True)
    class Bare(Reweighter):
        def reweight(self, table, signals, context):
            return Estimated(np.zeros(int(table.length.sum())))

    @dataclass(frozen=True)
    class Short(Reweighter):
        def reweight(self, table, signals, context):
            return Estimated(PerToken(np.zeros(1)))

    table = StepTable(**columns_of([[(True, [("a", "go", True)])]]) | {"length": [3]})
    base = Pipeline.from_config(BASE).stages
    with pytest.raises(ValueError, match=r"shape \(3,\), expected \(1,\); one value per token is PerToken"):
        Pipeline((*base, Bare())).run(table)
    with pytest.raises(ValueError, match=r"per token of shape \(1,\), expected \(3,\)"):
        Pipeline((*base, Short())).run(table)
