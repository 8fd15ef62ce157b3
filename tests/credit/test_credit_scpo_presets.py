"""SCPO's ablations as presets, worked by hand, and the speed of its allocation."""

import time
from pathlib import Path

import numpy as np
import pytest

from credit.parts.matching import Layout, Matching, Rule
from credit.pipeline import Pipeline
from credit.stages.scpo import allocate

ROOT = Path(__file__).parents[2]
# reference step by failed step; "long" is the success of three steps, "short" that of two
SIMILARITY = {
    ("long a", "p"): 0.9, ("long a", "q"): 0.65, ("long a", "r"): 0.8, ("long a", "s"): 0.1,
    ("long b", "p"): 0.3, ("long b", "q"): 0.7, ("long b", "r"): 0.6, ("long b", "s"): 0.2,
    ("long c", "p"): 0.7, ("long c", "q"): 0.1, ("long c", "r"): 0.75, ("long c", "s"): 1.0,
    ("short a", "p"): 0.1, ("short a", "q"): 0.9, ("short a", "r"): 0.3, ("short a", "s"): 0.7,
    ("short b", "p"): 0.62, ("short b", "q"): 0.2, ("short b", "r"): 0.3, ("short b", "s"): 0.5,
}  # fmt: skip


class Written:
    """Similarities as in `SIMILARITY`, by the steps' actions."""

    def score(self, pairs):
        return np.array([SIMILARITY[tuple(text.split("Action: ")[1] for text in pair)] for pair in pairs])


class Known:
    """Similarities that are all there from the start."""

    def __init__(self, values):
        self.values = values

    def read(self, entries):
        return self.values[entries]

    def identical(self, entries):
        return np.zeros(len(entries), dtype=bool)

    def fetch(self, entries):
        pass


@pytest.mark.parametrize(
    ("preset", "position", "credit"),
    [
        # p is best (0.9) and takes a; then r (0.8) looks beyond a and takes c (0.75); nothing is left for q
        ("scpo", [0, -1, 2, -1], [0.8, 0, 0.5, 0]),
        # p takes a, q looks beyond a and takes b (0.7), r beyond b and takes c
        ("scpo_chronological", [0, 1, 2, -1], [0.8, 0.4, 0.5, 0]),
        # each its best: r takes a (0.8), which p has taken too
        ("scpo_no_monotonicity", [0, 1, 0, -1], [0.8, 0.4, 0.6, 0]),
        # q is best (0.9) and takes a; p looks beyond it and takes b (0.62)
        ("scpo_shortest", [1, 0, -1, -1], [0.24, 0.8, 0, 0]),
        # the invalid step s is best (1.0) and takes the last position
        ("scpo_no_filter", [-1, -1, -1, 2], [0, 0, 0, 1]),
        ("scpo_singleton_raw", [0, -1, 2, -1], [0.8, 0, 0.5, 0]),
    ],
)
def test_presets_by_hand(build, preset, position, credit):
    table = build(
        [
            {
                "success": True,
                "steps": [["A", "long a", 0, 1], ["B", "long b", 0, 1], ["C", "long c", 10, 1]],
            },
            {"success": True, "steps": [["D", "short a", 0, 1], ["E", "short b", 10, 1]]},
            {"success": False, "steps": [[x.upper(), x, 0, x != "s"] for x in "pqrs"]},
            {"success": False, "group": 1, "steps": [["F", "p", 0, 1]]},
        ]
    )
    method = Pipeline.from_yaml(ROOT / "configs" / "credit" / f"{preset}.yaml")
    result = method.run(table, {"pair_scorer": Written()})
    failed = slice(5, 9)
    assert result.columns["scpo.sibling_t"][failed].tolist() == position
    np.testing.assert_allclose(result.columns["scpo.credit"][failed], credit, atol=1e-12)
    # all are alone at their anchor: credit reaches the advantage in one preset only
    lone = 0.5 * np.array(credit) if preset == "scpo_singleton_raw" else np.zeros(4)
    np.testing.assert_allclose(result.columns["gigpo.step"][failed], lone, atol=1e-12)
    matched = sum(j >= 0 for j in position)
    want = {
        "credited_fraction": matched / 4,
        "credit_mean": sum(credit) / matched,
        "credited_in_singletons": 1.0,
        "reference_length": 2.0 if preset == "scpo_shortest" else 3.0,
        "groups_without_success": 0.5,
    }
    for name, value in want.items():
        assert result.metrics[f"credit/scpo/{name}"] == pytest.approx(value, abs=1e-12), name


@pytest.mark.slow
@pytest.mark.parametrize("monotone", ["running_max", "chain", "none"])
@pytest.mark.parametrize("order", ["similarity_desc", "chronological"])
def test_allocation_of_8192_trajectories_takes_two_seconds_of_one_core(order, monotone):
    """Scores given; half of the trajectories failed, 30 steps each."""
    values = np.random.default_rng(0).random(4096 * 30 * 30)
    layout = Layout(np.full(4096, 30), np.full(4096, 30))
    began = time.process_time()
    matching = Matching(layout, Known(values), Rule(0.6, order, monotone, "argmax"))
    position = matching.run(np.arange(4096), lambda k: None)
    assert time.process_time() - began < 2.0
    for k in range(0, 4096, 512):
        M = values[900 * k : 900 * (k + 1)].reshape(30, 30).T
        assert position[k].tolist() == allocate(M, 0.6, 0.5, order=order, monotone=monotone)[0].tolist()
