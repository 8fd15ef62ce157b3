"""How much credit methods disagree, by hand."""

import numpy as np
import pytest
from scipy.stats import spearmanr

from eval.replay.disagreement import Agreement, sign_distance, spread


def test_sign_distance_by_hand():
    advantages = np.array(
        [[1.0, 1.0, 0.0, 0.0, -2.0], [2.0, -1.0, 1.0, 0.0, -1.0], [3.0, -1.0, -1.0, 0.0, 0.0]]
    )
    # pairs of three methods: equal; + against two -; 0 + -: 1/2 + 1 + 1/2; all 0; two - and a 0: 1/2 twice
    assert sign_distance(advantages).tolist() == pytest.approx([0, 2 / 3, 2 / 3, 0, 1 / 3])
    assert sign_distance(advantages[:1]).tolist() == [0] * 5


def test_spread_is_in_units_of_each_method():
    advantages = np.array([[1.0, -1.0, 0.0], [10.0, 10.0, 0.0]])
    rms = np.sqrt([2 / 3, 200 / 3])
    expected = [abs(1 / rms[0] - 10 / rms[1]), 1 / rms[0] + 10 / rms[1], 0]
    assert spread(advantages).tolist() == pytest.approx(expected)
    assert spread(1000 * advantages[:1]).tolist() == pytest.approx((np.abs(advantages[0]) / rms[0]).tolist())
    assert spread(np.zeros((2, 3))).tolist() == [0, 0, 0]
    assert spread(np.zeros((2, 0))).shape == (0,)


def test_agreement_adds_up_over_updates():
    rng = np.random.default_rng(0)
    updates = [np.round(rng.normal(size=(2, n)), 1) for n in (30, 50)]
    agreement = Agreement(["a", "b"])
    for advantages in updates:
        agreement.add(advantages, advantages[0])
    (pair,) = agreement.pairs
    both = np.concatenate(updates, axis=1)
    assert (pair.first, pair.second, pair.steps) == ("a", "b", 80)
    assert pair.opposite == int((both[0] * both[1] < 0).sum())
    expected = sum(spearmanr(*advantages).statistic * advantages.shape[1] for advantages in updates) / 80
    assert pair.rank_correlation == pytest.approx(expected)
    first, second = agreement.methods
    assert (first.unlike, second.unlike) == (0, int((both[0] != both[1]).sum()))
    assert second.unlike_by == pytest.approx(np.abs(both[0] - both[1]).max())
    assert first.mean == pytest.approx(np.abs(both[0]).mean())


def test_a_constant_method_has_no_rank_correlation():
    agreement = Agreement(["a", "b"])
    agreement.add(np.array([[0.0, 0.0], [1.0, -1.0]]), None)
    assert agreement.pairs[0].rank_correlation is None
    assert agreement.pairs[0].one_silent == 2
    assert agreement.methods[0].unlike is None


# --- a run, the result and the page ------------------------------------------------------------------------
