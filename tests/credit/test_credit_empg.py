"""EMPG: weights and bonus from entropies, by hand, in the limit, and what it leaves alone."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from credit.pipeline import Pipeline
from credit.signals import Context, PerToken, Signals
from credit.stages.empg import EMPG
from credit.table import StepTable

FAST = settings(max_examples=15, deadline=None, derandomize=True)


def table_of(outcomes, lengths, entropy, group=None):
    """Trajectories of `len(lengths[k])` steps, one group unless told otherwise."""
    rows = [(k, t, n) for k, steps in enumerate(lengths) for t, n in enumerate(steps)]
    return StepTable(
        group=[(group or [0] * len(outcomes))[k] for k, _, _ in rows],
        trajectory=[k for k, _, _ in rows],
        t=[t for _, t, _ in rows],
        reward=[outcomes[k] * (t == len(lengths[k]) - 1) for k, t, _ in rows],
        outcome=[outcomes[k] for k, _, _ in rows],
        success=[outcomes[k] > 0 for k, _, _ in rows],
        anchor=["here"] * len(rows),
        length=[n for _, _, n in rows],
        tokens={"entropy": entropy},
    )


def empg(**options):
    return Pipeline.from_config({"grpo": {"norm": "mean"}, "empg": options})


def test_by_hand():
    """Rows' entropies are 1, 3 | 2: H = 0, 1, ½; advantages +5, +5 | −5."""
    table = table_of([10.0, 0.0], [[2, 1], [2]], [0.5, 1.5, 3.0, 1.0, 3.0])
    result = empg(k=1.0, k_future=2.0, zeta=0.1, eps=1e-12).run(table)
    g = np.exp([0.0, -1.0, -0.5])
    g /= g.mean()
    bonus = np.array([0.1 * np.exp(-2.0), 0.0, 0.0])
    want = np.array([5, 5, -5]) * g + bonus
    np.testing.assert_allclose(result.advantage, want - want.mean(), atol=1e-9)
    np.testing.assert_allclose(result.columns["empg.scale"], g, atol=1e-9)
    np.testing.assert_allclose(result.columns["empg.bonus"], bonus, atol=1e-9)
    assert result.columns["empg.entropy"].tolist() == [1.0, 3.0, 2.0]
    assert result.metrics["credit/empg/entropy_high"] == 3.0


lengths = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=3), min_size=2, max_size=4)


@FAST
@given(lengths=lengths, seed=st.integers(0, 99))
def test_without_k_and_bonus_only_the_mean_goes(lengths, seed):
    table = drawn(lengths, seed)
    grpo = Pipeline.from_config({"grpo": {"norm": "mean"}}).run(table).advantage
    got = empg(k=0.0, zeta=0.0, all_groups=True).run(table).advantage
    np.testing.assert_allclose(got, grpo - grpo.mean(), atol=1e-12)


@FAST
@given(lengths=lengths, seed=st.integers(0, 99), k=st.floats(0, 3))
def test_weights_have_mean_one_and_fall_with_entropy(lengths, seed, k):
    table = drawn(lengths, seed)
    result = empg(k=k, all_groups=True).run(table)
    spoke = table.length > 0
    scale, entropy = result.columns["empg.scale"][spoke], result.columns["empg.entropy"][spoke]
    if spoke.any():
        assert scale.mean() == pytest.approx(1.0)
        assert (np.diff(scale[np.argsort(entropy)]) <= 1e-12).all()
    assert (result.columns["empg.scale"][~spoke] == 1.0).all()
    assert abs(result.advantage.mean()) < 1e-9


def drawn(lengths, seed):
    rng = np.random.default_rng(seed)
    outcomes = 10.0 * (rng.random(len(lengths)) < 0.5)
    return table_of(outcomes.tolist(), lengths, rng.random(sum(map(sum, lengths))))


def test_equal_entropies_change_nothing_but_the_bonus():
    table = table_of([10.0, 0.0], [[1, 1], [1, 1]], [0.7] * 4)
    result = empg(zeta=0.5).run(table)
    np.testing.assert_allclose(result.advantage, [5.25, 4.75, -4.75, -5.25])


def test_a_group_without_advantage_stays_out():
    """Its entropies are the extremes; with all_groups it would set the range and share bonus and mean."""
    lengths, entropy = [[1, 1], [1], [1, 1]], [1.0, 2.0, 3.0, 0.0, 9.0]
    table = table_of([10.0, 0.0, 10.0], lengths, entropy, group=[0, 0, 1])
    alone = table_of([10.0, 0.0], lengths[:2], entropy[:3])
    result = empg().run(table)
    np.testing.assert_allclose(result.advantage[:3], empg().run(alone).advantage, atol=1e-12)
    assert result.advantage[3:].tolist() == [0.0, 0.0]
    assert result.metrics["credit/empg/part_fraction"] == 0.6
    assert empg(all_groups=True).run(table).advantage[3:].all()


def test_token_advantages_are_weighted_by_row():
    table = table_of([10.0, 0.0], [[2], [1]], [1.0, 1.0, 2.0])
    zero = np.zeros(2)
    stage = EMPG(zeta=0.0)
    got = stage.reweight(table, Signals(zero, zero, zero, PerToken(np.array([4.0, 6.0, -5.0]))), Context())
    g = got.columns["scale"]
    want = np.array([4 * g[0], 6 * g[0], -5 * g[1]])
    np.testing.assert_allclose(got.advantage.values, want - want.mean(), atol=1e-12)


def test_the_entropies_are_asked_for():
    method = empg()
    assert method.token_columns == {"entropy"}
    table = table_of([10.0, 0.0], [[1], [1]], [1.0, 2.0])
    bare = StepTable(
        **{name: getattr(table, name) for name in ("group", "trajectory", "t", "reward")}
        | {name: getattr(table, name) for name in ("outcome", "success", "anchor")}
    )
    with pytest.raises(ValueError, match="credit.empg reads the token column 'entropy'"):
        method.run(bare)
