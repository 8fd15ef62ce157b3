"""Numbers worked out by hand, one case for every path of every stage."""

import json
from pathlib import Path

import numpy as np
import pytest

from credit.pipeline import Pipeline
from credit.scorer import make_scorer
from credit.statistics import normalise, normalise_float32

CASES = json.loads((Path(__file__).parent / "hand_worked.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_by_hand(case, build):
    result = Pipeline.from_config(case["stages"]).run(
        build(case["trajectories"]), {"pair_scorer": make_scorer("lexical")}
    )
    np.testing.assert_allclose(result.advantage, case["advantage"], rtol=0, atol=1e-12)
    if "returns" in case:
        np.testing.assert_allclose(result.returns, case["returns"], rtol=0, atol=1e-12)
    for name, want in case.get("columns", {}).items():
        np.testing.assert_allclose(result.columns[name], want, rtol=0, atol=1e-12)


def test_float32_ties_make_noise_and_float64_ties_exactly_zero():
    peers, weight = np.zeros(7, dtype=int), np.ones(7)
    noise = 0.0
    for depth in range(50):
        values = np.full(7, 10 * 0.95**depth)
        assert not normalise(values, peers, weight, ddof=1, eps=1e-6).any()
        noise = max(noise, np.abs(normalise_float32(values, peers, weight, ddof=1, eps=1e-6)).max())
    assert 0.1 < noise < 0.5


@pytest.mark.parametrize("n", [1, 2, 7, 9, 40, 70])
def test_float32_statistics_agree_with_float64_away_from_ties(n):
    rng = np.random.default_rng(n)
    values, peers, weight = rng.normal(5, 3, n), np.zeros(n, dtype=int), np.ones(n)
    for ddof in (1, None):
        np.testing.assert_allclose(
            normalise_float32(values, peers, weight, ddof=ddof, eps=1e-6),
            normalise(values, peers, weight, ddof=ddof, eps=1e-6),
            atol=1e-4,
        )
