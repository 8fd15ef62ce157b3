"""The report over several runs: what is a variant, its intervals by hand, and one file that stands alone."""

import json
import math

import pytest
import torch
from scipy.stats import t

from eval.report.effects import effects
from eval.report.environment import describe, record, recorded
from eval.report.variants_report import comparison_html, write_comparison
from eval.result import EvalError
from eval.runfolder import RunFolder
from eval.statistics import Interval, welch
from eval.variants import contrasts, differences, variants_of
from tests.eval.synthetic import RunWriter, result, toy_groups
from tests.eval.test_report import Page


def made(root, name, method, seed, solved, *more):
    """A run of two updates that solves `solved` of 10 held-out tasks."""
    run = RunWriter(root / name, method=method, overrides=[f"seed={seed}", *more])
    run.evaluate(0, result([1] * 2 + [0] * 8, families=2))
    for update in (1, 2):
        run.update(update, toy_groups(update + seed))
    run.evaluate(2, result([1] * solved + [0] * (10 - solved), families=2, version=2))
    return RunFolder.read(run.path)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    return [
        made(root, "s0", "scpo", 0, 6),
        made(root, "g0", "grpo", 0, 4),
        made(root, "s1", "scpo", 1, 7, "threads=2"),
        made(root, "g1", "grpo", 1, 5),
        made(root, "s2", "scpo", 2, 8),
    ]


def test_seeds_are_one_arm(runs):
    scpo, grpo = variants_of(runs)
    assert (scpo.label, scpo.seeds) == ("SCPO", [0, 1, 2])  # threads change no figure
    assert (grpo.label, grpo.seeds) == ("GRPO", [0, 1])
    assert scpo.held_out("after").mean == pytest.approx(0.7)
    assert grpo.held_out("before") == Interval(2, 0.2, 0.0, None, None)


def test_runs_of_one_seed_count_once(tmp_path):
    """They differ in the rounding only: 0.5 and 0.7 of seed 0 are 0.6, beside 0.8 of seed 1."""
    more = {"a": (0, 5), "b": (0, 7, "train.token_budget=4096"), "c": (1, 8)}
    (variant,) = variants_of([made(tmp_path, name, "scpo", *options) for name, options in more.items()])
    found = variant.held_out("after")
    assert (found.n, found.mean) == (2, pytest.approx(0.7)) and variant.rates("after") == pytest.approx(
        [0.6, 0.8]
    )
    assert variant.curve("rollout/success")[1][0].n == 2


def test_curves_are_means_over_seeds(runs):
    scpo = variants_of(runs)[0]
    updates, intervals = scpo.curve("rollout/success")
    assert updates == [1, 2]
    for at, interval in enumerate(intervals):
        values = [run.series("rollout/success")[1][at] for run in scpo.runs]
        assert interval.mean == pytest.approx(sum(values) / 3)
    smoothed = scpo.curve("rollout/success", window=2)[1]
    assert smoothed[0].mean == pytest.approx(intervals[0].mean)
    assert smoothed[1].mean == pytest.approx((intervals[0].mean + intervals[1].mean) / 2)


def test_contrast_by_hand(runs):
    """Welch: means 0.7 and 0.45, variances 0.01/3 and 0.005/2; t = 0.25 / √0.0058333 = 3.27327."""
    (contrast,) = contrasts(variants_of(runs))
    assert contrast.difference == pytest.approx(0.25)
    freedom = (0.01 / 3 + 0.0025) ** 2 / ((0.01 / 3) ** 2 / 2 + 0.0025**2 / 1)
    assert contrast.over_seeds.p == pytest.approx(2 * t.sf(0.25 / math.sqrt(0.01 / 3 + 0.0025), freedom))
    half = t.ppf(0.975, freedom) * math.sqrt(0.01 / 3 + 0.0025)
    assert contrast.over_seeds.lo == pytest.approx(0.25 - half)


def test_options_that_differ(runs, tmp_path):
    found = dict(differences(variants_of(runs)))
    assert found["credit.name"] == ["scpo", "grpo"]
    assert found["credit.stages.scpo.theta"][1] == "–"
    assert "seed" not in found and "threads" not in found
    lr = [runs[0], made(tmp_path, "lr", "scpo", 0, 5, "train.lr=1e-5")]
    compared = variants_of(lr)
    assert dict(differences(compared)) == {"train.lr": [lr[0].get("train.lr"), 1e-5]}
    assert [variant.label for variant in compared] == [f"SCPO lr={lr[0].get('train.lr')}", "SCPO lr=1e-05"]


def test_a_run_of_a_version_without_an_option_is_named_so(runs, tmp_path):
    """It may have done what an option's default now does, or not: it is a variant of its own."""
    old = made(tmp_path, "old", "scpo", 7, 5)
    config = json.loads((old.path / "config.json").read_text())
    del config["eval"]["samples"], config["prompt"]["parse"]
    (old.path / "config.json").write_text(json.dumps(config))
    compared = [runs[0], RunFolder.read(old.path)]
    assert [variant.label for variant in variants_of(compared)] == ["SCPO", "SCPO (older version)"]
    lr = made(tmp_path, "lr", "scpo", 0, 5, "train.lr=1e-5")
    assert [variant.label for variant in variants_of([*compared, lr])] == [
        f"SCPO lr={runs[0].get('train.lr')}",
        f"SCPO lr={runs[0].get('train.lr')} (older version)",
        "SCPO lr=1e-05",
    ]


def test_an_arm_without_spread_beside_one_with_some_warns_of_nothing(recwarn):
    assert welch([0.25, 0.25], [0.25, 0.5]).p == pytest.approx(0.5)
    assert not recwarn.list


def test_page(runs, tmp_path):
    path = write_comparison([run.path for run in runs], tmp_path / "new" / "report.html")
    html = path.read_text(encoding="utf-8")
    page = Page(html)
    for part in ("SCPO · GRPO", "5 runs in 2 variants", "SCPO − GRPO", "family-0", "rollout", "credit.name"):
        assert part in page.text
    assert len(page.ids) == len(set(page.ids))
    assert {link[1:] for link in page.links if link.startswith("#")} <= set(page.ids)
    assert all(link.startswith(("#", "data:")) for link in page.links)
    assert "script" not in page.tags and "default-src 'none'" in html
    assert comparison_html(runs) == comparison_html(runs)


def test_alarms_stand_first_and_name_their_run(tmp_path):
    two = [made(tmp_path, name, "grpo", seed, 5) for seed, name in enumerate(("fine", "still"))]
    event = {"update": 2, "alarm": "flat", "raised": True, "text": "no group's <b>attempts</b> differ"}
    (two[1].path / "alarms.jsonl").write_text(json.dumps(event) + "\n")
    text = " ".join(Page(comparison_html(two)).text.split())
    assert text.index("still, update 2: no group's <b>attempts</b> differ") < text.index(
        "2 runs in 1 variant"
    )
    assert "fine, update" not in text


def test_effects_of_an_arm_are_means_over_the_updates_of_its_seeds(runs):
    (found,) = effects([record for run in runs if run.method == "scpo" for record in run.metrics])
    text = " ".join(Page(comparison_html(runs)).text.split())
    assert "SCPO: effect of each stage" in text
    assert f"scpo{found.correlation:.3f}" in text and found.turned in text
    assert "GRPO: effect" not in text, "GRPO has no stage to leave out"


def test_runs_that_have_only_begun(tmp_path):
    new = [RunFolder.read(RunWriter(tmp_path / name, method=name).path) for name in ("grpo", "scpo")]
    text = Page(comparison_html(new)).text
    assert "No update has been recorded yet" in text and "No evaluation has been recorded yet" in text


def test_nothing_and_twice(runs):
    with pytest.raises(EvalError, match="name one run folder"):
        variants_of([])
    with pytest.raises(EvalError, match="s0 is named twice"):
        variants_of([runs[0], runs[0]])


def test_environment_is_recorded_and_shown(runs, tmp_path):
    run = made(tmp_path, "e", "scpo", 5, 5)
    assert recorded(run.path) == {}
    record(run.path)
    assert recorded(run.path) == describe()
    assert describe()["torch"] == torch.__version__
    assert torch.__version__ in Page(comparison_html([run, runs[1]])).text
    (run.path / "environment.json").write_text('{"tor')
    assert recorded(run.path) == {}
