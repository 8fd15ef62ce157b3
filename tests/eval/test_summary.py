"""The line a run ends with, and summary.json."""

import json

import pytest

from eval.result import EvalError
from eval.runfolder import RunFolder
from eval.summary import result_line, write_summary
from tests.eval.synthetic import RunWriter, result, toy_groups


def line(folder, env, before, after):
    run = RunWriter(folder, method="scpo", overrides=[f"env.name={env}"])
    run.evaluate(0, before)
    run.update(1, toy_groups(1))
    run.evaluate(1, after)
    return result_line(RunFolder.read(run.path), "runs/x/report.html")


def test_result_line_is_exactly_this(tmp_path):
    before, after = result([1] * 152 + [0] * 248), result([1] * 208 + [0] * 192)
    assert line(tmp_path / "games", "alfworld", before, after) == (
        "held-out success 0.38 [0.33,0.43] → 0.52 [0.47,0.57] on 400 games · SCPO · 1 updates · "
        "report runs/x/report.html"
    )


def test_a_score_that_says_more_than_success_is_in_the_line(tmp_path):
    # Of 100 tasks 28 earn 1 and 36 earn ½: mean 0.46, standard error √(0.1584/99) = 0.04, t(99) = 1.984.
    graded = result([1] * 28 + [0] * 72, scores=[1.0] * 28 + [0.5] * 36 + [0.0] * 36)
    after = result([1] * 208 + [0] * 192)
    assert line(tmp_path / "goals", "webshop", graded, after) == (
        "held-out success 0.28 [0.20,0.37] → 0.52 [0.47,0.57], score 0.46 [0.38,0.54] → 0.52 [0.47,0.57] "
        "on 400 goals · SCPO · 1 updates · report runs/x/report.html"
    )


def test_summary_of_a_finished_run(finished_run):
    path = write_summary(finished_run.path)
    summary = json.loads(path.read_text(encoding="utf-8"))
    assert path.name == "summary.json"
    assert [summary[key] for key in ("name", "method", "seed", "updates", "n")] == ["toy", "scpo", 3, 3, 400]
    assert (summary["before"]["success"], summary["after"]["success"]) == (0.38, 0.52)
    assert summary["after"]["per_family"]["family-0"]["n"] == 100
    assert summary["difference"] == pytest.approx(0.14)
    assert summary["lo"] < 0.14 < summary["hi"]
    assert summary["disjoint"] is True
    assert summary["seconds"] == pytest.approx(3 * 16.0 + 2.0)
    assert summary["tokens"] > 0


def test_summary_of_a_run_that_has_only_begun(tmp_path):
    run = RunWriter(tmp_path / "begun", method="grpo")
    summary = json.loads(write_summary(run.path).read_text())
    assert summary["method"] == "grpo"
    assert summary["updates"] == 0
    assert [summary[key] for key in ("n", "before", "after", "p", "disjoint", "seconds", "tokens")] == [
        None
    ] * 7
    run.evaluate(0, result([1, 0, 0]))
    summary = json.loads(write_summary(run.path).read_text())
    assert (summary["n"], summary["before"]["n"], summary["after"], summary["p"]) == (3, 3, None, None)


def test_a_folder_that_is_no_run(tmp_path):
    with pytest.raises(EvalError, match="not a run folder"):
        write_summary(tmp_path)
