"""A training run on environment servers ends with the weights of one in process, bit for bit."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from contextlib import ExitStack

import pytest

from tests.serving import ROOT

ENV = ("env.max_steps=8", "env.difficulty=0.1", "env.train_tasks=8")
SMALL = (
    *(
        "train.updates=2",
        "rollout.groups=3",
        "rollout.group_size=4",
        "eval.tasks=3",
        "processes=1",
        "threads=1",
    ),
    *("logging.wandb=off", "rollout.mode=deterministic"),
)


def serving(stack):
    """Starts `run.py serve`; returns its address."""
    command = [sys.executable, "run.py", "serve", "alfworld", "--port", "0", "--workers", "1", *ENV]
    process = stack.enter_context(subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True))
    stack.callback(process.terminate)
    return re.search(r"http://\S+", process.stdout.readline())[0]


def trained(folder, *overrides):
    """Trains; returns the weights of the last checkpoint, and what was logged of its rollouts."""
    command = [
        sys.executable,
        "run.py",
        "train",
        "alfworld_cpu",
        "--out",
        str(folder),
        *ENV,
        *SMALL,
        *overrides,
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    weights = sorted(folder.glob("checkpoints/*/**/model.safetensors"))[-1].read_bytes()
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    rewards = [{k: v for k, v in row.items() if k.startswith("rollout/success")} for row in rows]
    return weights, rewards


@pytest.mark.slow
def test_the_same_weights_in_process_in_workers_and_on_servers(tmp_path):
    here = trained(tmp_path / "here")
    assert any(here[1])
    assert trained(tmp_path / "workers", "env.workers=2") == here
    with ExitStack() as stack:
        urls = ",".join(serving(stack) for _ in range(2))
        assert trained(tmp_path / "servers", f"env.urls={urls}") == here
