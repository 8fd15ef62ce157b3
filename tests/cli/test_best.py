"""`checkpoint.keep_best`, a resume, `eval --best` and `eval.samples`, from the command line."""

import json
import re
import shutil

import pytest

from tests.cli.test_runs import SMALL, call, toy_policy  # noqa: F401  (fixtures)

BEST = ["checkpoint.keep_best=eval/score", "checkpoint.keep=1", "eval.every=1", "eval.split=valid_seen"]


def trained(call, toy_policy, *options):  # noqa: F811
    code, _, error = call(
        "train", "alfworld_cpu", "credit=grpo", toy_policy, *SMALL, "--out", "run", *options
    )
    assert code in (0, None), error


def test_the_best_is_kept_through_a_resume_and_evaluated_on_another_split(call, toy_policy, tmp_path):  # noqa: F811
    """The toy policy solves nothing, so all evaluations are equal and the first is the best: the start."""
    trained(call, toy_policy, *BEST)
    run = tmp_path / "run"
    assert sorted(path.name for path in (run / "checkpoints").iterdir()) == ["0000", "0002"]
    code, lines, error = call("train", "--resume", "run", "train.updates=3")
    assert code in (0, None), error
    assert sorted(path.name for path in (run / "checkpoints").iterdir()) == ["0000", "0003"]
    assert re.search(
        r" · 3 updates · best score 0\.00 of 4 after update 0, flattered by about 0\.00 · ", lines[-1]
    )
    summary = json.loads((run / "summary.json").read_text())["best"]
    assert (summary["update"], summary["among"], summary["flattery"]) == (0, [0, 1, 2, 3], 0.0)
    assert 'id="best"' in (run / "report.html").read_text()

    code, lines, error = call("eval", "--run", "run", "--best", "eval.split=valid_unseen", "eval.tasks=2")
    assert code in (0, None), error
    told = "best checkpoint, after update 0: run/checkpoints/0000, chosen by eval/score (0.000 on valid_seen)"
    assert told in lines
    assert "chosen on valid_seen, reported on valid_unseen" in lines
    assert re.fullmatch(r"held-out success \S+ \S+ on 2 games of valid_unseen", lines[-1])

    code, lines, error = call("eval", "--run", "run", "--best", "eval.tasks=2")
    assert any("chosen and reported on valid_seen: that flatters (by about 0.000)" in line for line in lines)
    code, lines, error = call("eval", "--run", "run", "eval.tasks=2", "eval.samples=3", "--out", "r.json")
    assert code in (0, None), error
    assert "newest checkpoint, after update 3: run/checkpoints/0003" in lines
    expected = (
        r"held-out success \S+ \S+, pass@3 \S+ \S+, pass\^3 \S+ \S+ on 2 games × 3 attempts of valid_seen"
    )
    assert re.fullmatch(expected, lines[-1]), lines[-1]
    document = json.loads((tmp_path / "r.json").read_text())
    assert [record["attempt"] for record in document["tasks"]] == [0, 1, 2] * 2

    shutil.rmtree(run / "checkpoints" / "0000")
    code, _, error = call("eval", "--run", "run", "--best")
    assert code == 2
    assert "keeps no best checkpoint" in error and "There are: 0003 (without --best" in error


def test_a_run_trains_and_reports_with_several_attempts(call, toy_policy, tmp_path):  # noqa: F811
    trained(call, toy_policy, "train.updates=1", "eval.samples=2", "eval.tasks=2")
    records = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert all(record["eval/samples"] == 2 and "eval/pass_at/2" in record for record in records)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["n"], summary["samples"], summary["best"]) == (2, 2, None)


def test_an_older_runs_checkpoint_is_resumed_though_it_knows_fewer_options(call, toy_policy, tmp_path):  # noqa: F811
    import torch

    trained(call, toy_policy, "train.updates=1")
    run = tmp_path / "run"
    file = run / "checkpoints" / "0001" / "trainer.pt"
    document = torch.load(file, weights_only=True)
    config = json.loads((run / "config.json").read_text())
    for tree in (document["config"], config):
        del tree["eval"]["samples"], tree["checkpoint"]["keep_best"]
    torch.save(document, file)
    (run / "config.json").write_text(json.dumps(config))
    code, lines, error = call("train", "--resume", "run", "train.updates=2", *BEST[:1], "eval.every=1")
    assert code in (0, None), error
    assert any("no checkpoint of a best eval/score is kept so far" in line for line in lines)
    assert " · best score 0.00 of 1 after update 2" in lines[-1]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            ["show", "alfworld_cpu", "checkpoint.keep_best=eval/steps"],
            "must be a metric to choose by: eval/success",
        ),
        (["show", "alfworld_cpu", "checkpoint.keep_best=eval/success", "eval.every=0"], "set eval.every"),
        (["show", "alfworld_cpu", "eval.samples=0"], "`eval.samples`"),
        (["eval", "alfworld_cpu", "--best"], "say which, with --run"),
    ],
)
def test_mistakes(call, arguments, told):  # noqa: F811
    code, _, error = call(*arguments)
    assert code == 2
    assert told in error and error.count("error: ") == 1
