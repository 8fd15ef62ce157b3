"""How many processes a run has, and that their number changes nothing but the order of sums."""

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from commands import processes
from commands.build.declared import credit_pipeline
from commands.processes import PROCESS_BYTES, _quota, physical_cores, process_count
from configs.load import load, load_run
from rl.tracking.metrics import TIMED
from rl.tracking.tracker import read_metrics
from tests.conftest import ROOT

SMALL = [
    "alfworld_cpu", "env.train_tasks=8", "rollout.groups=3", "rollout.group_size=3", "env.max_steps=12",
    "eval.tasks=5", "logging.wandb=off", "train.updates=2", "checkpoint.every=1",
]  # fmt: skip
CORES = physical_cores


@pytest.fixture
def machine(monkeypatch):
    """Eight cores and much memory, no GPU, no launcher."""
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    monkeypatch.setattr(processes, "physical_cores", lambda: 8)
    monkeypatch.setattr(processes, "_has_gpu", lambda: False)
    memory = SimpleNamespace(available=100 * PROCESS_BYTES)
    monkeypatch.setattr(processes.psutil, "virtual_memory", lambda: memory)
    return memory


def count(*options, asked=None):
    loaded = load("alfworld_cpu", options)
    return process_count(loaded.config, credit_pipeline(loaded), asked)


def test_one_process_per_core_unless_somebody_says_otherwise(machine, monkeypatch):
    assert count() == 8
    assert count("processes=3") == 3 and count("processes=3", asked=5) == 5 and count(asked=1) == 1
    assert count("rollout.groups=1", "rollout.group_size=4") == 4  # trajectories
    assert count("credit=3spo") == 1
    assert count("train.engine=deepspeed") == 1
    assert count("generator.backend=server", "generator.urls=http://127.0.0.1:1") == 1
    machine.available = int(2.9 * PROCESS_BYTES)
    assert count() == 2 and count(asked=6) == 6
    machine.available = 0
    assert count() == 1
    monkeypatch.setattr(processes, "_has_gpu", lambda: True)
    machine.available = 100 * PROCESS_BYTES
    assert count() == 1


def test_a_launchers_number_comes_first(machine, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert count("processes=2", asked=7) == 4


@pytest.mark.parametrize(
    ("text", "cores"),
    [("max 100000", None), ("250000 100000", 2), ("50000 100000", 1), ("1600000 100000", 16), ("?", None)],
)
def test_a_containers_limit(tmp_path, text, cores):
    (tmp_path / "cpu.max").write_text(text + "\n")
    assert _quota(tmp_path / "cpu.max") == cores
    assert _quota(tmp_path / "nothing") is None


def test_cores_are_those_allowed_and_no_threads_of_one(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(12)), raising=False)
    monkeypatch.setattr(processes.psutil, "cpu_count", lambda logical: 6)
    monkeypatch.setattr(processes, "_quota", lambda file: None)
    assert CORES() == 6
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3}, raising=False)
    assert CORES() == 1
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(12)), raising=False)
    monkeypatch.setattr(processes, "_quota", lambda file: 4)
    assert CORES() == 4
    monkeypatch.setattr(processes.psutil, "cpu_count", lambda logical: None)  # not known here
    assert CORES() == 4


def train(folder, *options):
    done = subprocess.run(
        [sys.executable, "run.py", "train", *SMALL, *options, "--out", str(folder)],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    return done.stdout


def weights(folder, update=2):
    return load_file(folder / "checkpoints" / f"{update:04d}" / "model.safetensors")


def apart(one, other, update):
    """Largest difference of a weight."""
    ours, theirs = weights(one, update), weights(other, update)
    return max(float((ours[name] - theirs[name]).abs().max()) for name in ours)


def figures(folder):
    return [
        {name: value for name, value in record.items() if not name.startswith(TIMED)}
        for record in read_metrics(folder / "metrics.jsonl")
    ]


def successes(folder):
    return [task["success"] for task in json.loads((folder / "eval" / "0002.json").read_text())["tasks"]]


def test_two_processes_make_the_run_of_one(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    assert "· 2 processes" not in train(one, "--nproc", "1")
    assert "· 2 processes" in train(two, "--nproc", "2")
    assert apart(one, two, 1) < 1e-5 and apart(one, two, 2) < 5e-5  # Adam divides by gradients near 0
    assert successes(one) == successes(two)
    for alone, shared in zip(figures(one), figures(two), strict=True):
        assert alone.keys() == shared.keys()
        for name, value in alone.items():
            np.testing.assert_allclose(shared[name], value, rtol=1e-3, atol=1e-5, err_msg=name)
    assert load_run(one).config.processes == 1 and load_run(two).config.processes == 2


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["alfworld_cpu", "webshop_cpu"])
def test_four_processes_repeat_to_the_bit_and_a_resumed_run_keeps_its_number(tmp_path, preset):
    one, four, again = (tmp_path / name for name in ("one", "four", "again"))
    shop = ["env.max_steps=12"] if preset == "webshop_cpu" else []
    options = [preset, *SMALL[2:4], *SMALL[5:], *shop, "checkpoint.every=1"]

    def run(folder, *more):
        done = subprocess.run(
            [sys.executable, "run.py", "train", *more],
            cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=500,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
        return done.stdout

    run(one, *options, "processes=1", "--out", str(one))
    run(four, *options, "processes=4", "--out", str(four))
    assert apart(one, four, 1) < 1e-5 and apart(one, four, 2) < 5e-5
    run(again, *options, "train.updates=1", "processes=4", "--out", str(again))
    assert "· 4 processes" in run(again, "--resume", str(again), "train.updates=2")
    resumed = weights(again)
    assert all(torch.equal(weight, resumed[name]) for name, weight in weights(four).items())
