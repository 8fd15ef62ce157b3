"""Two updates of the shipped policy under every shipped credit method, by the command line; and a refusal."""

import json
import math
import sys

import pytest

import run as cli
from configs.methods import methods
from configs.protocol import protocols
from rl.tracking.metrics import describe

SMALL = [
    "rollout.groups=2",
    "rollout.group_size=4",
    "env.max_steps=6",
    "env.difficulty=0.0",
    "env.train_tasks=4",
    "eval.tasks=1",
    "train.updates=2",
    "train.token_budget=4096",
    "threads=1",
    "logging.wandb=off",
]


def test_a_window_that_the_model_cannot_read_is_refused_before_anything_is_made(
    monkeypatch, tmp_path, capsys
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["run.py", "train", "alfworld_cpu", *SMALL, "probes.window=4096"])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert caught.value.code == 2
    assert "probes.window=4096, but the model reads at most 2048 tokens" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
@pytest.mark.parametrize("method", methods())
def test_two_updates(method, monkeypatch, tmp_path, capsys):
    two_updates([f"credit={method}"], monkeypatch, tmp_path, capsys)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", protocols())
@pytest.mark.parametrize("preset", ["alfworld_cpu", "webshop_cpu"])
def test_two_updates_under_every_protocol(preset, protocol, monkeypatch, tmp_path, capsys):
    """The tiny policy reads at most 2,048 tokens and answers in few."""
    sizes = ["prompt.window=2048", "prompt.max_response_tokens=64", "train.minibatch_rows=16", "eval.every=0"]
    two_updates([f"protocol={protocol}", "credit=gigpo", *sizes], monkeypatch, tmp_path, capsys, preset)


def two_updates(options, monkeypatch, tmp_path, capsys, preset="alfworld_cpu"):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["run.py", "train", preset, *SMALL, *options])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert caught.value.code in (0, None), capsys.readouterr().err
    (folder,) = (tmp_path / "runs").iterdir()
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [record.pop("update") for record in records] == [0, 1, 2]
    for record in records:
        for name, value in record.items():
            assert math.isfinite(value), name
            assert describe(name)
    assert records[1]["train/optimizer_steps"] + records[1]["train/skipped_steps"] >= 1
    assert (folder / "checkpoints" / "0002" / "model.safetensors").is_file()
    assert len(list((folder / "trajectories").iterdir())) == 2
