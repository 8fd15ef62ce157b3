"""Coordinates in the pictures of sweeps, ablations and reports: nothing is joined, stretched or outside."""

import json

import numpy as np
import pytest
from matplotlib.collections import LineCollection

from eval.experiments.folder import Run
from eval.experiments.picture import Dots, Whisker, effects, forest
from eval.experiments.sweep import Found
from eval.report import figures
from eval.report import variant_figures as variant_figures
from eval.report.axes import LEAST_SHARE, WHOLE_SHARE, limits
from eval.report.svg import sparkline
from eval.statistics import AMOUNT, SHARE
from eval.variants import Variant


def panel_of(figure):
    return [axes for axes in figure.axes if axes.get_visible()]


def vertical(axes):
    """(x, low, high) of the intervals drawn."""
    lines = [c for c in axes.collections if isinstance(c, LineCollection)]
    return [(s[0][0], s[0][1], s[1][1]) for line in lines for s in line.get_segments()]


def dots(axes):
    """Points drawn, [n, 2], grey and blue."""
    kept = [c.get_offsets() for c in axes.collections if not isinstance(c, LineCollection)]
    return np.concatenate(kept)


# --- sweeps ------------------------------------------------------------------------------------------------


def sweep_figure(y, values=("scpo", "gigpo"), within=SHARE, metric="eval/success"):
    """A picture of two values with the metric `y` [value][seed]."""
    runs = [(value, y[i][seed], seed) for i, value in enumerate(values) for seed in range(len(y[i]))]
    return effects("t", metric, {"credit": Dots.of(runs)}, within)


def test_categories_are_not_joined():
    (axes,) = panel_of(sweep_figure([[0.4, 0.5], [0.6, 0.8]]))
    assert axes.get_lines() == []
    assert [label.get_text() for label in axes.get_xticklabels()] == ["scpo", "gigpo"]
    for x, _, _ in vertical(axes):
        assert 0 < x - round(x) < 0.5, "an interval stands at its own category"


def test_success_stays_within_0_and_1():
    """0.05 and 0.4 from two seeds: Student's interval is [−2, 2.4]."""
    figure = sweep_figure([[0.05, 0.4], [0.9, 0.99]])
    (axes,) = panel_of(figure)
    assert axes.get_ylim() == WHOLE_SHARE
    (_, low, high), (_, other, end) = vertical(axes)
    assert (low, high, end) == (0.0, 1.0, 1.0) and other == pytest.approx(0.945 - 12.7062 * 0.045, abs=1e-4)
    assert all(0 <= y <= 1 for y in dots(axes)[:, 1])
    caption = figure.get_supxlabel().replace("\n", " ")
    assert "95 % interval over seeds" in caption and "ends at 0 and 1" in caption


@pytest.mark.parametrize("apart", [0.0, 1e-6, 1e-3])
@pytest.mark.parametrize("value", [0.5, 300.0, -2.0, 0.0])
def test_equal_values_look_equal(value, apart):
    difference = apart * abs(value)
    (axes,) = panel_of(sweep_figure([[value], [value + difference]], within=None, metric="train/kl_ref"))
    low, high = axes.get_ylim()
    assert difference <= 0.01 * (high - low) and low < value <= value + difference < high


def test_a_real_difference_fills_the_axis_of_another_metric():
    (axes,) = panel_of(sweep_figure([[1.0], [5.0]], within=None))
    low, high = axes.get_ylim()
    assert 4 / (high - low) > 0.8


def test_means_over_seeds_average_the_other_options_first():
    """Seed 0 has two runs at `a`, 0.2 and 0.4; seed 1 one, 0.5: (0.3 + 0.5) / 2 = 0.4."""
    found = Dots.of([("a", 0.2, 0), ("a", 0.4, 0), ("a", 0.5, 1)]).means(SHARE)[0]
    assert (found.n, found.mean) == (2, pytest.approx(0.4))


def test_axes_of_options():
    assert Dots.of([(0.9, 1.0, 0), (0.6, 2.0, 0), (0.9, 3.0, 1)]).ticks == ["0.6", "0.9"]
    words = Dots.of([("b", 1.0, 0), ("a", 2.0, 0)])
    assert words.ticks == ["b", "a"], "words keep the order of the file"
    wide = Dots.of([(10.0**-i, 0.0, 0) for i in range(20)])
    assert wide.ticks is None and wide.log and wide.means(None) == {}


def test_a_sweep_knows_the_range_of_its_metric(tmp_path):
    runs = []
    for seed, value in enumerate((0.05, 0.4)):
        folder = tmp_path / str(seed)
        folder.mkdir()
        (folder / "metrics.jsonl").write_text(json.dumps({"update": 2, "eval/success": value}) + "\n")
        (folder / "summary.json").write_text('{"updates": 2}')
        runs.append(Run(folder.name, folder, (), "one", seed, 2, {"x": 1}))
    table = Found("eval/success", True, runs, ["x"], SHARE).table("t").markdown()
    assert "[0.000, 1.000]" in table and "It ends at 0 and 1." in table
    assert "[−1.999, 2.449]" in Found("eval/success", True, runs, ["x"]).table("t").markdown()


# --- ablations ---------------------------------------------------------------------------------------------


def test_a_forest_shows_success_on_its_whole_range_and_small_differences_small():
    success = [Whisker("full", [0.5, 0.5], 0.5, None, None), Whisker("less", [0.49, 0.5], 0.495, 0.43, 0.56)]
    apart = [Whisker("less", [-0.01, 0.0], -0.005, -0.0685, 0.0585)]
    figure = forest("t", {"held-out success": success, "difference": apart}, "difference")
    left, right = panel_of(figure)
    assert left.get_xlim() == WHOLE_SHARE
    low, high = right.get_xlim()
    assert low < -0.0685 and high > 0.0585
    figure = forest("t", {"s": success, "d": [Whisker("less", [0.001], 0.001, None, None)]}, "d")
    low, high = panel_of(figure)[1].get_xlim()
    assert high - low >= LEAST_SHARE and low < 0 < high
    assert "that of a difference at −1 and 1" in figure.get_supxlabel().replace("\n", " ")


# --- reports -----------------------------------------------------------------------------------------------


class Logged:
    """As much of a run folder as a curve needs."""

    def __init__(self, values):
        self.values = values

    def get(self, key):
        return id(self)  # a seed of its own

    def series(self, metric):
        return list(range(1, len(self.values) + 1)), self.values


@pytest.fixture
def drawn(monkeypatch):
    """Keeps the axes of a report's figure, whose SVG alone is returned."""
    kept = []
    for module in (figures, variant_figures):
        monkeypatch.setattr(module, "to_svg", lambda figure, *_: kept.append(figure.axes[0]) or "")
    return kept


def band(axes):
    return np.concatenate([path.vertices for c in axes.collections for path in c.get_paths()])


@pytest.mark.parametrize("draw", ["learning", "small"])
def test_bands_of_shares_stay_within_0_and_1(drawn, draw):
    variant = Variant("a", [Logged([0.0, 0.9]), Logged([0.3, 1.0])])
    if draw == "learning":
        variant_figures.learning_figure([variant], "rollout/success")
    else:
        variant_figures.small_figure([variant], "rollout/valid", "t", "n", SHARE)
    heights = band(drawn[0])[:, 1]
    assert heights.min() == 0.0 and heights.max() == 1.0
    low, high = drawn[0].get_ylim()
    assert -0.05 < low <= 0 and 1 <= high < 1.05


def test_bands_of_what_cannot_be_negative_end_at_0(drawn):
    """Student's interval of 1 and 9 goes from −46 to 56."""
    variant = Variant("a", [Logged([1.0, 2.0]), Logged([9.0, 8.0])])
    variant_figures.small_figure([variant], "train/grad_norm", "t", "n", AMOUNT)
    heights = band(drawn[0])[:, 1]
    assert heights.min() == 0.0 and heights.max() > 50
    assert -0.05 < drawn[0].get_ylim()[0] <= 0


def test_one_seed_has_no_band(drawn):
    variant_figures.learning_figure([Variant("a", [Logged([0.1, 0.9])])], "rollout/success")
    assert not any(len(path.vertices) for c in drawn[0].collections for path in c.get_paths())


def test_panels_do_not_stretch_what_is_equal(drawn):
    plot = figures.Plot("t", {"m": "m"}, within=SHARE)
    figures.plot_figure(plot, {"m": ([1, 2, 3], [0.5, 0.5001, 0.4999])}, "n")
    low, high = drawn[0].get_ylim()
    assert high - low >= LEAST_SHARE
    line = str(sparkline([100.0, 100.001]))
    first, last = (float(point.split(",")[1]) for point in line.split('points="')[1].split('"')[0].split())
    assert abs(first - last) <= 0.1


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_no_tick_says_more_than_all_or_less_than_none(drawn, value):
    """Of values that are all 1 the axis ends at 1.02, where matplotlib puts a tick."""
    plot = figures.Plot("t", {"m": "m"}, within=SHARE)
    figures.plot_figure(plot, {"m": ([1, 2, 3], [value] * 3)}, "n")
    variant_figures.small_figure([Variant("a", [Logged([value, value])])], "rollout/valid", "t", "n", SHARE)
    for axes in drawn:
        ticks = axes.yaxis.get_majorticklocs()
        said = [axes.yaxis.get_major_formatter()(tick, 0) for tick in ticks]
        shown = [float(label.removesuffix("%")) for label in said if label]
        assert 100 * value in shown and min(shown) >= 0 and max(shown) <= 100


def test_limits_of_nothing_and_of_what_is_not_finite():
    assert limits([]) == limits([None, float("nan"), float("inf")])
    low, high = limits([0.0, 1.0], within=SHARE)
    assert (low, high) == pytest.approx(WHOLE_SHARE)
