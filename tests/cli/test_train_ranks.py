"""Whole runs in several processes, with vLLM and with policy servers, against a plain run."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from rl.tracking.metrics import TIMED
from rl.tracking.tracker import read_metrics
from tests.conftest import ROOT

pytestmark = pytest.mark.slow
SMALL = [
    "alfworld_cpu", "env.train_tasks=8", "rollout.groups=3", "rollout.group_size=4",
    "eval.tasks=5", "checkpoint.every=1", "logging.wandb=off", "threads=1", "processes=1",
]  # fmt: skip
ZERO_2 = ["train.engine=deepspeed", "train.zero_stage=2"]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu"}


def command(*arguments):
    return [sys.executable, "run.py", *arguments]


def run(*arguments, code=0):
    done = subprocess.run(
        command(*arguments), cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, timeout=500
    )
    assert done.returncode == code, done.stdout[-2000:] + done.stderr[-4000:]
    return done


def weights(folder, update=2):
    return load_file(folder / "checkpoints" / f"{update:04d}" / "model.safetensors")


def assert_close(folder, other, update=2, atol=1e-5):
    ours, theirs = weights(folder, update), weights(other, update)
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        torch.testing.assert_close(theirs[name], tensor, atol=atol, rtol=0.0)


def figures(folder):
    return [
        {name: value for name, value in record.items() if not name.startswith((*TIMED, "sync/"))}
        for record in read_metrics(folder / "metrics.jsonl")
    ]


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """Two updates of one process with the torch engine."""
    folder = tmp_path_factory.mktemp("plain") / "run"
    run("train", *SMALL, "train.updates=2", "--out", str(folder))
    assert [record["train/optimizer_steps"] for record in figures(folder)[1:]] == [1, 1]
    return folder


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("two") / "run"
    done = run("train", *SMALL, *ZERO_2, "train.updates=2", "--out", str(folder), "--nproc", "2")
    assert "2 processes" in done.stdout
    return folder


def test_two_processes_make_the_run_of_one(plain, two_ranks):
    """The same trajectories, figures and weights, up to the order of sums."""
    assert_close(plain, two_ranks)
    for one, two in zip(figures(plain), figures(two_ranks), strict=True):
        assert one.keys() == two.keys()
        for name, value in one.items():
            np.testing.assert_allclose(two[name], value, rtol=1e-3, atol=1e-5, err_msg=name)
    evaluations = [json.loads((folder / "eval" / "0002.json").read_text()) for folder in (plain, two_ranks)]
    assert [[task["success"] for task in one["tasks"]] for one in evaluations][0] == [
        task["success"] for task in evaluations[1]["tasks"]
    ]


def test_one_process_goes_on_where_two_stopped(plain, two_ranks, tmp_path):
    """Two processes for two updates, then one for a third, against three by one process."""
    whole = tmp_path / "whole"
    run("train", *SMALL, "train.updates=3", "--out", str(whole))
    run("train", "--resume", str(two_ranks), "train.updates=3")
    assert_close(whole, two_ranks, update=3, atol=3e-5)
    assert [record["update"] for record in read_metrics(two_ranks / "metrics.jsonl")] == [0, 1, 2, 3]


def test_adapters_over_two_processes_and_zero_3(tmp_path):
    """A whole run with adapters: as one process, evaluated and gone on with like any other."""
    lora = ["model.lora.r=8", "train.lr=3e-3", "train.updates=1"]
    run("train", *SMALL, *lora, "--out", str(tmp_path / "one"))
    sharded = ["train.engine=deepspeed", "train.zero_stage=3", "--nproc", "2"]
    run("train", *SMALL, *lora, *sharded, "--out", str(tmp_path / "two"))
    assert_close(tmp_path / "one", tmp_path / "two", update=1, atol=2e-5)
    shipped = load_file(ROOT / "agent/assets/alfworld-tiny/model.safetensors")
    ours = weights(tmp_path / "two", update=1)
    assert max((ours[name] - tensor).abs().max() for name, tensor in shipped.items()) > 1e-3
    assert {path.name for path in (tmp_path / "two/checkpoints/0001/adapter").iterdir()} >= {
        "adapter_config.json",
        "adapter_model.safetensors",
    }
    run("train", "--resume", str(tmp_path / "two"), "train.updates=2")
    run("eval", "--run", str(tmp_path / "two"))


def test_a_killed_process_ends_the_run_and_is_named(tmp_path):
    folder = tmp_path / "run"
    running = subprocess.Popen(
        command("train", *SMALL, *ZERO_2, "train.updates=50", "--out", str(folder), "--nproc", "2"),
        cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 240
        while not (folder / "checkpoints" / "0001" / "trainer.pt").exists():
            assert running.poll() is None and time.monotonic() < deadline
            time.sleep(0.2)
        (victim,) = [pid for pid in children(running.pid) if environment(pid).get("RANK") == "1"]
        os.kill(victim, signal.SIGKILL)
        _, errors = running.communicate(timeout=60)
    finally:
        running.kill()
    assert running.returncode not in (0, None)
    last = errors.strip().splitlines()
    assert re.search(rf"rank 1 \(pid {victim}\).*SIGKILL", last[-2]), errors[-2000:]
    assert last[-1] == f"go on with: python run.py train --resume {folder} --nproc 2"
    assert not [pid for pid in children(os.getpid()) if environment(pid).get("RANK")]


def children(pid):
    """All descendants of a process."""
    found = []
    for child in map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()):
        found += [child, *children(child)]
    return found


def environment(pid):
    try:
        pairs = Path(f"/proc/{pid}/environ").read_text().split("\0")
    except OSError:
        return {}
    return dict(pair.split("=", 1) for pair in pairs if "=" in pair)


def test_policy_servers_make_the_run_of_one_process(plain, tmp_path):
    """Bit for bit: the server's batches are those of the rounds."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(
        command("serve-policy", *SMALL, "--port", str(port)),
        cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert "serving the policy" in server.stdout.readline()
        where = ["generator.backend=server", f"generator.urls=http://127.0.0.1:{port}"]
        run("train", *SMALL, *where, "train.updates=2", "--out", str(tmp_path / "run"))
    finally:
        server.terminate()
        server.wait(60)
    for name, tensor in weights(plain).items():
        assert torch.equal(weights(tmp_path / "run")[name], tensor), name
    assert all(record["sync/logp_gap"] < 1e-4 for record in read_metrics(tmp_path / "run/metrics.jsonl")[1:])


def test_vllm_generates_for_two_processes(plain, tmp_path):
    pytest.importorskip("vllm")
    folder = tmp_path / "run"
    options = [*ZERO_2, "generator.backend=vllm", "train.updates=2"]
    run("train", *SMALL, *options, "--out", str(folder), "--nproc", "2")
    records = read_metrics(folder / "metrics.jsonl")
    assert [record["update"] for record in records] == [0, 1, 2]
    for record in records[1:]:
        assert record["sync/logp_gap"] < 1e-4
        assert record["train/mismatch_mean"] < 1e-4
    assert records[0].keys() == read_metrics(plain / "metrics.jsonl")[0].keys()


def test_a_search_wants_one_process():
    done = run("train", *SMALL, "credit=3spo", "rollout.staleness=1", code=2)
    assert "trains after every step of its search" in done.stderr
    done = run("train", *SMALL, "credit=3spo", "--nproc", "2", code=2)
    assert "it needs one process" in done.stderr
