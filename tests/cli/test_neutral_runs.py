"""Whether options that are said to change nothing do: whole runs, weights compared."""

import json
import sys

import pytest
import torch
from safetensors.torch import load_file

import run as cli
from configs.neutral import MEASURED, NOTHING, ROUNDING, effect
from rl.tracking.metrics import TIMED
from tests.cli.test_runs import SMALL
from tests.toy import COMPACT_TEMPLATE, tiny_model, toy_tokenizer

UNCHANGED = [
    "name=other",
    "env.workers=1",
    "env.timeout_s=20",
    "env.patience_s=300",
    "rollout.watchdog_s=500",
    "rollout.early_stop=true",
    "train.timeout_s=900",
    "checkpoint.every=0",
    "checkpoint.keep=1",
    "logging.learner_logp=true",
    "logging.tensorboard=true",
    "logging.trajectories=2",
    "eval.every=1",
]
ROUNDED = [
    "train.token_budget=512",
    "rollout.max_parallel=2",
    "eval.max_parallel=1",
    "model.gradient_checkpointing=true",
]


# The toy policy solves nothing, so what moves its weights is the entropy bonus.
LEARNS = ["train.entropy_coef=0.1", "train.lr=1e-3", "env.max_steps=2", "eval.tasks=2"]


@pytest.fixture(scope="module")
def train(tmp_path_factory):
    """Trains a toy policy for two updates: (weights, update → metrics)."""
    root = tmp_path_factory.mktemp("neutral")
    tokenizer = toy_tokenizer(COMPACT_TEMPLATE)
    tiny_model(len(tokenizer), std=0.1).save_pretrained(root / "policy")
    tokenizer.save_pretrained(root / "policy")

    def train(name, *overrides):
        out = root / name
        options = [*SMALL, *LEARNS, f"model.path={root / 'policy'}", "credit=gigpo", *overrides]
        with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as caught:
            patch.setattr(sys, "argv", ["run.py", "train", "alfworld_cpu", "--out", str(out), *options])
            cli.main()
        assert caught.value.code in (0, None)
        records = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
        return (
            load_file(out / "checkpoints" / "0002" / "model.safetensors"),
            {record["update"]: record for record in records},
        )

    return train


@pytest.fixture(scope="module")
def plain(train):
    return train("plain")


def same(a, b):
    return all(torch.equal(a[name], b[name]) for name in a)


def test_what_changes_nothing_leaves_every_bit_of_weights_and_figures(train, plain):
    assert {effect(option.partition("=")[0]) for option in UNCHANGED} == {NOTHING, MEASURED}
    assert plain[1][2]["train/grad_norm"] > 0
    weights, metrics = train("unchanged", *UNCHANGED)
    assert same(weights, plain[0])
    for update, record in plain[1].items():
        figures = {key: value for key, value in record.items() if not key.startswith(TIMED)}
        assert figures == {key: metrics[update].get(key) for key in figures}
    assert "eval/success" in metrics[1] and "eval/success" not in plain[1][1], "it is measured more often"


def test_what_changes_the_rounding_changes_no_more(train, plain):
    assert {effect(option.partition("=")[0]) for option in ROUNDED} == {ROUNDING}
    weights, _ = train("rounded", *ROUNDED)
    for name, weight in plain[0].items():
        torch.testing.assert_close(weights[name], weight, rtol=0.0, atol=2e-6)


def test_what_matters_changes_the_weights(train, plain):
    assert effect("train.weight_decay") is None
    assert not same(train("other", "train.weight_decay=0.5")[0], plain[0])
