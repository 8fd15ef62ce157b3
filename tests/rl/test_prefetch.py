"""Rollouts one update ahead: what they sample with, and that the run is otherwise the same."""

import threading

import pytest
import torch

from rl.collect import collect
from rl.prefetch import Prefetch
from rl.rows.privileged import Privileged
from rl.settings import RolloutSettings
from rl.tracking.tracker import read_metrics
from rl.tracking.trajectory_store import load_groups
from tests.rl.helpers import pretrained_toy, toy_run
from tests.toy import ToyEnv, toy_tasks

GROUPS = dict(groups=3, group_size=4)


def stored(run_dir, update):
    return load_groups(run_dir / "trajectories" / f"{update:04d}.parquet")


def responses(groups):
    return [
        (tr.group, tr.index, [step.response_ids for step in tr.steps]) for group in groups for tr in group
    ]


def test_an_update_ahead_is_sampled_with_the_weights_of_one_before(tmp_path):
    toy_run(tmp_path, updates=4, staleness=1, **GROUPS)
    versions = [
        {step.policy_version for group in stored(tmp_path, update) for tr in group for step in tr.steps}
        for update in (1, 2, 3, 4)
    ]
    assert versions == [{0}, {0}, {1}, {2}]


def test_what_is_rolled_out_ahead_is_what_the_older_policy_plays(tmp_path):
    """Update 2's trajectories against those of the untrained policy, played by themselves."""
    toy_run(tmp_path / "ahead", updates=2, staleness=1, **GROUPS)
    toy = pretrained_toy()
    settings = RolloutSettings(ToyEnv, toy_tasks(24, seed=1, rooms=2), toy.prompts, **GROUPS)
    alone = collect(toy.policy(), settings, position=GROUPS["groups"], seed=3).groups
    assert responses(stored(tmp_path / "ahead", 2)) == responses(alone)
    toy_run(tmp_path / "in_step", updates=2, **GROUPS)
    assert responses(stored(tmp_path / "ahead", 1)) == responses(stored(tmp_path / "in_step", 1))
    assert responses(stored(tmp_path / "ahead", 2)) != responses(stored(tmp_path / "in_step", 2))


def test_bound_0_is_the_run_in_step_and_both_repeat(tmp_path):
    for name, staleness in (("a", 0), ("b", 0), ("c", 1), ("d", 1)):
        toy_run(tmp_path / name, updates=3, staleness=staleness, **GROUPS)
    losses = {
        name: [record["train/loss"] for record in read_metrics(tmp_path / name / "metrics.jsonl")]
        for name in "abcd"
    }
    assert losses["a"] == losses["b"]
    assert losses["c"] == losses["d"]
    assert losses["a"][0] == losses["c"][0] and losses["a"] != losses["c"]


def test_tasks_go_on_where_the_rollout_before_ended_though_filters_draw_more(tmp_path):
    """With groups dropped and replaced, no group number comes twice and none is left out."""
    toy_run(tmp_path, updates=3, staleness=1, credit=("dynamic_sampling", "returns", "grpo"), **GROUPS)
    numbers = [group[0].group for update in (1, 2, 3) for group in stored(tmp_path, update)]
    assert numbers == sorted(set(numbers))
    drawn = [record["rollout/dropped_groups"] for record in read_metrics(tmp_path / "metrics.jsonl")]
    assert sum(drawn) > 0


def test_a_teacher_is_compared_with_the_weights_it_has_itself(tmp_path, monkeypatch):
    """A run one update ahead whose teacher reads nothing more: no gap in any update, though weights move."""
    monkeypatch.setattr(
        "rl.probes.probes.hindsight_rows", lambda rows, *_, **__: Privileged(list(rows), 0, 0)
    )
    toy_run(tmp_path, updates=3, staleness=1, lr=5e-3, credit=("returns", "grpo", "stepopsd"), **GROUPS)
    records = read_metrics(tmp_path / "metrics.jsonl")
    assert [record["train/stale_steps"] for record in records] == [0, 1, 1]
    assert max(record.get("train/mismatch_mean", 0.0) for record in records) > 1e-3  # the fault's gap
    assert all(record["credit/stepopsd/teacher_fraction"] == 1 for record in records)
    assert all(record["credit/stepopsd/gap_abs_mean"] < 1e-5 for record in records)
    assert ["probe/logp_sampled/tokens" in record for record in records] == [False, True, True]


def test_trouble_ahead_is_raised_where_the_result_is_asked_for():
    release = threading.Event()

    def work():
        release.wait(10)
        raise OSError("the environments are gone")

    prefetched = Prefetch(work)
    release.set()
    prefetched.wait()
    with pytest.raises(OSError, match="the environments are gone"):
        prefetched.take()
    assert Prefetch(lambda: 3).take() == 3


def test_the_thread_works_on_its_processes_accelerator(monkeypatch):
    """As CUDA does, every thread begins with device 0 and `set_device` is the calling thread's alone."""
    current = threading.local()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "set_device", lambda number: setattr(current, "number", number))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: getattr(current, "number", 0))
    torch.cuda.set_device(3)
    assert Prefetch(torch.cuda.current_device).take() == 3
    torch.cuda.set_device(1)
    assert Prefetch(torch.cuda.current_device).take() == 1
