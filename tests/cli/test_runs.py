"""`train`, `--resume`, `eval` and `report` on a toy policy: what a run leaves, and what it refuses."""

import json
import re
import sys

import pytest

import run as cli
from configs.load import read_config
from tests.toy import COMPACT_TEMPLATE, tiny_model, toy_tokenizer

SMALL = [
    "rollout.groups=2",
    "rollout.group_size=2",
    "rollout.max_parallel=4",
    "env.max_steps=3",
    "env.difficulty=0.0",
    "env.train_tasks=4",
    "prompt.window=1024",
    "prompt.max_response_tokens=8",
    "eval.tasks=3",
    "eval.max_parallel=4",
    "train.updates=2",
    "train.token_budget=4096",
    "checkpoint.every=1",
    "threads=1",
    "logging.wandb=off",
]
LAST_LINE = (
    r"held-out success \d\.\d\d \[\d\.\d\d,\d\.\d\d\] → \d\.\d\d \[\d\.\d\d,\d\.\d\d\] on 3 games · SCPO · "
    r"(\d+) updates · report (runs/\S+/report\.html)"
)


@pytest.fixture(scope="module")
def toy_policy(tmp_path_factory):
    folder = tmp_path_factory.mktemp("policy")
    tokenizer = toy_tokenizer(COMPACT_TEMPLATE)
    tiny_model(len(tokenizer)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return f"model.path={folder}"


@pytest.fixture
def call(capsys, monkeypatch, tmp_path):
    """Runs the command line in an empty folder: (exit code, output lines, errors)."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["run.py", *arguments])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        captured = capsys.readouterr()
        return caught.value.code, captured.out.strip().splitlines(), captured.err

    return call


def test_a_run_from_start_to_report_then_resumed_evaluated_and_refused(call, toy_policy, tmp_path):
    code, lines, error = call("train", "alfworld_cpu", "credit=scpo", toy_policy, *SMALL)
    assert code in (0, None), error
    match = re.fullmatch(LAST_LINE, lines[-1])
    assert match, lines[-1]
    assert match[1] == "2"
    folder = (tmp_path / match[2]).parent
    for name in (
        "config.json",
        "sources.json",
        "summary.json",
        "report.html",
        "eval/0000.json",
        "eval/0002.json",
    ):
        assert (folder / name).is_file(), name
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [record["update"] for record in records] == [0, 1, 2]
    assert sorted(p.name for p in (folder / "trajectories").iterdir()) == ["0001.parquet", "0002.parquet"]
    assert (folder / "checkpoints" / "0002" / "model.safetensors").is_file()
    assert json.loads((folder / "sources.json").read_text())["train.updates"] == "command line"

    run = str(folder.relative_to(tmp_path))
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    for arguments in (["--resume", run, "train.lr=3"], ["alfworld_cpu", "--resume", run]):
        code, _, error = call("train", *arguments)
        assert code == 2
        assert "cannot resume" in error
        assert "train.lr: " in error or "rollout.groups: " in error
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before, "nothing is touched"

    code, lines, error = call("train", "--resume", run, "train.updates=3")
    assert code in (0, None), error
    assert re.fullmatch(LAST_LINE, lines[-1])[1] == "3"
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [record["update"] for record in records] == [0, 1, 2, 3]
    assert read_config(folder / "config.json").train.updates == 3

    code, lines, error = call("eval", "--run", run, "eval.tasks=2", "--out", "result.json")
    assert code in (0, None), error
    assert re.fullmatch(r"held-out success \S+ \S+ on 2 games of valid_unseen", lines[-1])
    assert json.loads((tmp_path / "result.json").read_text())

    (folder / "report.html").unlink()
    code, lines, _ = call("report", run)
    assert code in (0, None)
    assert (folder / "report.html").is_file()


@pytest.mark.parametrize("credit", ["grpo", "rloo", "gigpo"])
def test_every_method_trains(call, toy_policy, credit):
    arguments = [*SMALL, "train.updates=1", "eval.tasks=1", "logging.trajectories=0"]
    code, lines, error = call("train", "alfworld_cpu", f"credit={credit}", toy_policy, *arguments)
    assert code in (0, None), error
    assert f"· {credit.upper()} · 1 updates" in lines[-1]


def test_stepwise_prompts_train_too(call, toy_policy):
    form = ["prompt.form=stepwise", "prompt.template=alfworld", "prompt.window=4000"]
    arguments = [*SMALL, "train.updates=1", "eval.tasks=1", *form]
    code, lines, error = call("train", "alfworld_cpu", toy_policy, *arguments)
    assert code in (0, None), error


@pytest.mark.parametrize(
    ("overrides", "parts"),
    [
        (["prompt.window=100000"], ["prompt.window=100000", "reads at most"]),
        (["prompt.window=64"], ["prompt.window"]),
        (["prompt.template=alfwrld"], ["alfwrld", "alfworld"]),
        (["scorer.options.depth=3", "credit=scpo"], ["depth"]),
    ],
)
def test_what_only_the_model_or_its_prompts_can_tell(call, toy_policy, overrides, parts):
    code, _, error = call("train", "alfworld_cpu", toy_policy, *SMALL, *overrides)
    assert code == 2
    for part in parts:
        assert part in error


def test_a_corrupt_game_is_named_and_skipped_only_if_told(call, toy_policy, tmp_path):
    data = tmp_path / "games.jsonl"
    code, _, error = call(
        "data", "alfworld", "--generate", "--out", str(data), "--split", "valid_unseen", "--n", "2"
    )
    assert code in (0, None), error
    with data.open("a", encoding="utf-8") as file:
        file.write('{"split": "valid_unseen", "goal": \n')
    arguments = ("eval", "alfworld_cpu", toy_policy, *SMALL, f"env.data={data}", "eval.tasks=null")
    code, _, error = call(*arguments)
    assert code == 2
    assert "games.jsonl, line 3" in error
    with pytest.warns(UserWarning, match="line 3"):
        code, lines, _ = call(*arguments, "env.skip_corrupt=true")
    assert code in (0, None)
    assert "on 2 games" in lines[-1]
