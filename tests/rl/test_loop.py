"""Whole runs on the toy environment with the real policy: it learns, it repeats itself, it resumes."""

import json

import numpy as np
import pytest
import torch

from configs.resuming import config_differences
from rl.checkpoint import CheckpointError, Checkpoints, TrainState
from rl.learner.torch_engine import STATE_FILE
from rl.tracking.metrics import METRICS, TIMED, describe
from rl.tracking.tracker import read_metrics
from rl.tracking.trajectory_store import load_groups, load_table
from tests.rl.helpers import make_learner, pretrained_toy, toy_run
from tests.toy import tiny_model

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")


def records(run_dir):
    """The metrics that may not differ between equal runs."""
    return [
        {name: value for name, value in record.items() if not name.startswith(TIMED)}
        for record in read_metrics(run_dir / "metrics.jsonl")
    ]


def played(run_dir):
    """Update → (task ids, response ids) of every stored file."""
    return {
        int(path.stem): [
            (tr.task_id, tr.seed, [s.response_ids for s in tr.steps]) for g in load_groups(path) for tr in g
        ]
        for path in sorted((run_dir / "trajectories").glob("*.parquet"))
    }


def optimizer_state(run_dir, update):
    return torch.load(run_dir / "checkpoints" / f"{update:04d}" / STATE_FILE, weights_only=True)["state"]


def test_it_learns(tmp_path):
    """Success on the toy corridor from under 0.4 to over 0.8 within 20 updates."""
    evaluations = []
    toy_run(
        tmp_path,
        updates=20,
        evaluate=lambda policy, update: evaluations.append(update) or {"eval/success": 0.5},
    )
    success = [record["rollout/success"] for record in records(tmp_path)[1:]]
    assert success[0] < 0.4
    assert np.mean(success[-3:]) > 0.8
    assert evaluations == [0, 20]
    assert {name for record in records(tmp_path) for name in record if name != "update"} <= {
        name for name in METRICS
    } | {f"rollout/success/{family}" for family in ("near", "far")}


def test_sampler_and_learner_agree_in_every_update(tmp_path):
    toy_run(tmp_path, updates=3, groups=3, group_size=4)
    for record in records(tmp_path):
        assert record["train/mismatch_mean"] < 1e-5
        assert record["train/mismatch_ratio_max"] < 1 + 1e-4


def test_the_same_seed_twice_gives_the_same_run(tmp_path):
    for name in ("a", "b"):
        toy_run(tmp_path / name, updates=2, groups=3, group_size=4)
    assert records(tmp_path / "a") == records(tmp_path / "b")
    assert played(tmp_path / "a") == played(tmp_path / "b")


def test_two_and_two_updates_are_four(tmp_path):
    """Killed in update 4 with the checkpoint of 2: weights, moments, metrics and tasks as in one go."""
    config = {"train": {"lr_schedule": "constant", "updates": 4}, "seed": 0}
    options = dict(groups=3, group_size=4, config=config, checkpoint_every=2)
    whole, _ = toy_run(tmp_path / "whole", updates=4, **options)
    killed = tmp_path / "killed"
    toy_run(killed, updates=2, **options)
    with (killed / "metrics.jsonl").open("a") as file:  # update 3 was made, and lost
        file.write(json.dumps({"update": 3, "rollout/success": 0.123}) + '\n{"update": 4, "roll')
    resumed, state = toy_run(killed, updates=4, resume=True, **options)
    assert state.update == resumed.version == 4
    for (name, expected), (other, got) in zip(whole.named_weights(), resumed.named_weights(), strict=True):
        assert name == other and torch.equal(expected, got), name
    moments, again = optimizer_state(tmp_path / "whole", 4), optimizer_state(killed, 4)
    for parameter, tensors in moments.items():
        assert all(torch.equal(tensor, again[parameter][key]) for key, tensor in tensors.items())
    assert records(killed) == records(tmp_path / "whole")
    assert played(killed) == played(tmp_path / "whole")


def test_a_checkpoint_is_a_model_folder_and_old_ones_go(tmp_path):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    learner, _ = toy_run(tmp_path, updates=4, groups=2, group_size=2, checkpoint_every=1)
    folder = tmp_path / "checkpoints"
    assert sorted(path.name for path in folder.iterdir()) == ["0003", "0004"]
    loaded = AutoModelForCausalLM.from_pretrained(folder / "0004").state_dict()
    assert all(torch.equal(loaded[name], tensor) for name, tensor in learner.named_weights())
    text = "go left<|im_end|>"
    tokenizer = AutoTokenizer.from_pretrained(folder / "0004")
    assert tokenizer.encode(text) == pretrained_toy().tokenizer.encode(text)


def test_an_unfinished_checkpoint_is_not_seen(tmp_path):
    toy = pretrained_toy()
    learner = make_learner(tiny_model(len(toy.tokenizer)))
    checkpoints = Checkpoints(tmp_path, keep=1, tokenizer=toy.tokenizer, config={})
    assert checkpoints.latest() is None
    path = checkpoints.save(learner, TrainState(update=7, best={"eval/success": 0.5}))
    (tmp_path / ".0008.partial").mkdir()
    (tmp_path / "0009").mkdir()
    assert checkpoints.latest() == path
    assert checkpoints.restore(path, learner) == TrainState(update=7, best={"eval/success": 0.5})
    with pytest.raises(CheckpointError, match="0009 is not a checkpoint"):
        checkpoints.restore(tmp_path / "0009", learner)
    with pytest.raises(ValueError, match="keep must be at least 1"):
        Checkpoints(tmp_path, keep=0, tokenizer=toy.tokenizer, config={})


def test_a_failing_save_leaves_the_last_checkpoint(tmp_path, monkeypatch):
    toy = pretrained_toy()
    learner = make_learner(tiny_model(len(toy.tokenizer)))
    checkpoints = Checkpoints(tmp_path, keep=1, tokenizer=toy.tokenizer, config={})
    path = checkpoints.save(learner, TrainState(update=1))

    def full(folder):
        raise OSError("disk full")

    monkeypatch.setattr(learner.engine, "save", full)
    with pytest.raises(OSError, match="disk full"):
        checkpoints.save(learner, TrainState(update=2))
    assert checkpoints.latest() == path


def test_resume_refuses_another_configuration(tmp_path):
    toy = pretrained_toy()
    learner = make_learner(tiny_model(len(toy.tokenizer)))
    saved = {"seed": 0, "train": {"lr": 1e-3, "betas": (0.9, 0.99)}, "threads": 2}
    path = Checkpoints(tmp_path, keep=1, tokenizer=toy.tokenizer, config=saved).save(learner, TrainState(1))
    now = {"seed": 1, "train": {"lr": 1e-4, "betas": [0.9, 0.99]}, "threads": 1}
    other = Checkpoints(tmp_path, keep=1, tokenizer=toy.tokenizer, config=now)
    with pytest.raises(
        CheckpointError, match="(?s)another configuration.*seed: 0 → 1\n  train.lr: 0.001 → 0.0001$"
    ):
        other.restore(path, learner)


@pytest.mark.parametrize(
    ("key", "schedule", "free"),
    [
        ("logging.wandb", "constant", True),
        ("checkpoint.keep", "constant", True),
        ("eval.every", "constant", True),
        ("threads", "constant", True),
        ("train.updates", "constant", True),
        ("train.updates", "cosine", False),
        ("eval.temperature", "constant", False),
        ("rollout.groups", "constant", False),
    ],
)
def test_what_may_differ_on_resume(key, schedule, free):
    def config(value):
        nested = {"train": {"lr_schedule": schedule}}
        section, _, option = key.rpartition(".")
        (nested.setdefault(section, {}) if section else nested)[option] = value
        return nested

    assert config_differences(config(1), config(2)) == ([] if free else [f"{key}: 1 → 2"])
    assert config_differences(config(1), config(1)) == []


def test_stored_trajectories_come_back_as_they_were(tmp_path):
    toy_run(
        tmp_path,
        updates=2,
        groups=2,
        group_size=3,
        credit=("returns", "gigpo"),
    )
    files = sorted((tmp_path / "trajectories").glob("*.parquet"))
    table = load_table(files)
    assert {"advantage", "return", "gigpo.step", "trajectory", "index", "anchor"} <= set(table.column_names)
    groups = load_groups(files[1])
    assert [len(group) for group in groups] == [3, 3]
    assert [tr.index for tr in groups[0]] == [0, 1, 2] and groups[0][0].group == 2
    rows = [row for row in table if row["update"] == 2]
    steps = [step for group in groups for tr in group for step in tr.steps]
    assert [step.response_ids for step in steps] == [row["response_ids"] for row in rows]
    assert all(step.policy_version == 1 and isinstance(step.observation.admissible, tuple) for step in steps)
    from rl.rows.assemble import step_table, token_rows

    assert step_table(groups).length.tolist() == [len(step.response_ids) for step in steps]
    assert sum(len(row.logp_sampled) for row in token_rows(groups)) <= len(steps) * 16


def test_the_learners_log_probabilities_are_stored_beside_the_samplers(tmp_path):
    toy_run(tmp_path, updates=3, groups=2, group_size=3, score_every=2)
    files = sorted((tmp_path / "trajectories").glob("*.parquet"))
    assert ["logp_now" in load_table(file).column_names for file in files] == [True, False, True]
    for row in (row for file in (files[0], files[2]) for row in load_table(file)):
        assert len(row["logp_now"]) == len(row["response_ids"]) > 0
        np.testing.assert_allclose(row["logp_now"], row["logp_sampled"], atol=1e-5)


def test_every_metric_is_described():
    assert describe("rollout/success/look")[0] == "share"
    with pytest.raises(KeyError, match="'train/vibes' has no entry"):
        describe("train/vibes")
