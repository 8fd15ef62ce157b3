"""The line a run ends with, and summary.json."""

import json

import pytest

from eval.result import EvalError
from eval.summary import result_line, write_summary
from tests.eval.synthetic import RunWriter, result


def test_result_line_is_exactly_this():
    before, after = result([1] * 152 + [0] * 248), result([1] * 208 + [0] * 192)
    assert result_line(before, after, "scpo", 40, "runs/x/report.html") == (
        "held-out success 0.38 [0.33,0.43] → 0.52 [0.47,0.57] on 400 games · SCPO · 40 updates · "
        "report runs/x/report.html"
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
