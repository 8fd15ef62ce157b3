"""What a stage changed, where people look: report, viewer, ablation, replay."""

import json

import pytest

from commands.replay import _summary
from credit.pipeline import Pipeline
from credit.scorer import make_scorer
from eval.experiments.ablation import Ablated, AblationFile
from eval.experiments.folder import Run
from eval.replay.page import write_page
from eval.replay.recorded import Method, read_run, run_files
from eval.replay.replay import replay
from eval.report.effects import effects
from eval.report.run_report import report_html
from eval.result import save_eval
from eval.runfolder import RunFolder, read_metrics
from tests.eval.test_ablation import evaluated
from tests.eval.test_report import Page
from tests.eval.viewing import client, make_runs

SCPO = {
    "correlation": 0.99,
    "distance": 0.2,
    "relative": 0.05,
    "changed": 0.1,
    "flips": 0.0012,
    "credited_positive": 0.04,
    "credited_positive_without": 0.0,
}


def record(update, stage="scpo", **changed):
    return {"update": update} | {f"credit/{stage}/effect_{k}": v for k, v in (SCPO | changed).items()}


def test_the_mean_is_over_the_updates_that_report_a_figure():
    first, second = record(1, correlation=0.97), record(2, flips=0.0032)
    del second["credit/scpo/effect_credited_positive"], second["credit/scpo/effect_relative"]
    (found,) = effects([first, second, {"update": 3}])
    assert (found.stage, found.correlation, found.flips) == (
        "scpo",
        pytest.approx(0.98),
        pytest.approx(0.0022),
    )
    assert (found.credited_positive, found.relative) == (0.04, 0.05)
    assert str(found) == "scpo: correlation 0.980, signs turned 0.22 %, credited steps with A > 0 4.0 %"
    assert effects([{"update": 1, "credit/advantage_std": 1.0}]) == []


def test_a_stage_that_credits_no_steps_in_particular():
    whole = {k: v for k, v in record(1, "graphgpo").items() if "credited" not in k}
    assert [str(one) for one in effects([whole | record(1)])] == [
        "graphgpo: correlation 0.990, signs turned 0.12 %",
        "scpo: correlation 0.990, signs turned 0.12 %, credited steps with A > 0 4.0 %",
    ]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    make_runs(folder)
    return folder


def test_report_and_viewer_show_what_the_metrics_say(root):
    (found,) = effects(read_metrics(root / "alpha" / "metrics.jsonl"))
    text = Page(report_html(RunFolder.read(root / "alpha"))).text
    assert "signs turned" in text and f"{found.correlation:.3f}" in text and found.turned in text
    page = client(root).get("/runs/alpha").text
    assert f"Effect on the advantage, mean over updates. scpo: correlation {found.correlation:.3f}" in page
    assert "A &gt; 0" in page
    for nothing in (report_html(RunFolder.read(root / "beta")), client(root).get("/runs/beta").text):
        assert "signs turned" not in nothing, "GRPO has no stage to leave out"


def test_replay_shows_it_per_method(root, tmp_path):
    methods = [
        Method(name, Pipeline.from_config(stages, name), {"pair_scorer": make_scorer("lexical")}, stages)
        for name, stages in {
            "strong": {"returns": {}, "scpo": {"alpha": 10.0}, "gigpo": {}},
            "none": {"returns": {}, "scpo": {"alpha": 0.0}, "gigpo": {}},
            "gigpo": {"returns": {}, "gigpo": {}},
        }.items()
    ]
    replayed = replay(read_run(run_files(root / "alpha"), tokens=False), methods, tmp_path / "replay.parquet")
    (strong,), (none,), nothing = (replayed.effects[name] for name in ("strong", "none", "gigpo"))
    assert nothing == [] and (none.correlation, none.flips) == (1.0, 0.0) and strong.correlation < 1
    lines = [line for line in _summary(replayed, "") if "with and without" in line]
    assert lines == [f"strong with and without {strong}", f"none with and without {none}"]
    write_page(tmp_path / "replay.html", replayed, methods, title="alpha")
    text = Page((tmp_path / "replay.html").read_text(encoding="utf-8")).text
    assert "Stages of strong" in text and "Stages of gigpo" not in text


def test_the_ablation_says_it_under_the_table(tmp_path):
    """Mean over a variant's finished runs: 0.99 and 0.97; a run that is not finished does not count."""
    spec = AblationFile(
        title="t",
        experiment="x",
        seeds=[0, 1],
        reference="full",
        variants={"full": {}, "without": {}, "begun": {}},
    )
    runs = []
    for variant, correlations in {"full": (0.99, 0.97), "without": (None, None), "begun": (0.5, 0.5)}.items():
        for seed, correlation in enumerate(correlations):
            folder = tmp_path / f"{variant}-{seed}"
            runs.append(Run(folder.name, folder, (), variant, seed, 1, {"variant": variant}))
            save_eval(folder, 1, evaluated([1, 0]))
            kept = record(1, correlation=correlation) if correlation else {"update": 1}
            (folder / "metrics.jsonl").write_text(json.dumps(kept) + "\n")
            if variant != "begun":
                (folder / "summary.json").write_text(json.dumps({"updates": 1}))
    table = Ablated(spec, runs, {}).table()
    assert r"credited steps with A $>$ 0 4.0 \%" in table.latex()
    said, *notes = table.notes[-2:]
    assert said.startswith("What a stage of the method changes in the advantage A, against the same method")
    assert notes == [
        "full · stage scpo: correlation 0.980, signs turned 0.12 %, credited steps with A > 0 4.0 %"
    ]
