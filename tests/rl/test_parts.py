"""Task order, learning rate, weight sync, metrics of a rollout, progress lines."""

import io

import pytest
import torch
from rich.console import Console

from rl.contract import Contract
from rl.learner.schedule import LearningRate
from rl.sync import SyncError, sync
from rl.task_order import draw
from rl.tracking.metrics import METRICS, render_table, rollout_metrics
from rl.tracking.progress import ProgressPanel
from tests.rl.helpers import make_learner, pretrained_toy, random_groups
from tests.toy import tiny_model


def test_each_pass_draws_every_task_once():
    tasks = list(range(10))
    drawn = [draw(tasks, 4, position=4 * u, seed=0) for u in range(5)]
    flat = sum(drawn, [])
    assert sorted(flat[:10]) == sorted(flat[10:]) == tasks
    assert flat[:10] != flat[10:]
    assert draw(tasks, 4, position=8, seed=0) == drawn[2] != draw(tasks, 4, position=8, seed=1)
    assert sorted(draw(tasks, 25, position=0, seed=0)[:20]) == sorted(tasks * 2)


def test_no_tasks():
    with pytest.raises(ValueError, match="train split is empty"):
        draw([], 4, position=0, seed=0)


def test_learning_rates():
    constant = LearningRate(1.0, warmup=4)
    assert [constant.at(u) for u in (1, 2, 4, 5, 900)] == [0.25, 0.5, 1.0, 1.0, 1.0]
    for kind, middle in (("linear", 0.55), ("cosine", 0.55)):
        decay = LearningRate(1.0, kind=kind, warmup=2, updates=13, min_ratio=0.1)
        assert [decay.at(3), decay.at(8), decay.at(13), decay.at(99)] == pytest.approx(
            [1.0, middle, 0.1, 0.1]
        )
    assert LearningRate(1.0, kind="linear", updates=1).at(1) == 1.0


@pytest.fixture(scope="module")
def toy():
    return pretrained_toy()


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_the_policy_samples_from_the_learners_weights(toy, temperature):
    policy = toy.policy()
    model = tiny_model(len(toy.tokenizer), hidden=64, intermediate=128, std=0.3, seed=5)
    learner = make_learner(model, temperature=temperature)
    probe = toy.tokenizer.encode("You in room 1 of 2")
    contract = Contract(probe, temperature)
    before, fault = contract.check(learner, policy)
    assert before["sync/logp_gap"] > 1e-2 and "differ from the learner's by" in fault
    learner.version = 3
    assert sync(learner, policy, contract)["sync/logp_gap"] < 5e-5  # of 64 tokens
    assert policy.version == 3
    assert sync(learner, policy) == {"train/weights_changed": 0.0}  # no contract, and the same weights


def test_a_policy_that_keeps_old_weights_is_caught(toy, monkeypatch):
    policy = toy.policy()
    learner = make_learner(tiny_model(len(toy.tokenizer), hidden=64, intermediate=128, std=0.3))
    monkeypatch.setattr(policy, "load_weights", lambda weights, version: setattr(policy, "version", version))
    with pytest.raises(SyncError, match=r"does not hold .*read back, their bits are not"):
        sync(learner, policy)
    monkeypatch.setattr(policy, "held_weights", lambda: None)  # as if it lay about these too
    with pytest.raises(SyncError, match="differ from the learner's by"):
        sync(learner, policy, Contract(toy.tokenizer.encode("You in room 1")))
    monkeypatch.setattr(policy, "load_weights", lambda weights, version: None)
    learner.version = 9
    with pytest.raises(SyncError, match="reports version 0 after taking version 9"):
        sync(learner, policy)


def test_weights_pass_by_value(toy):
    """Training after a sync must not move the policy."""
    policy, model = toy.policy(), tiny_model(len(toy.tokenizer), hidden=64, intermediate=128, std=0.3)
    learner = make_learner(model)
    sync(learner, policy)
    with torch.no_grad():
        model.model.norm.weight.mul_(3.0)
    probed, _ = Contract(toy.tokenizer.encode("You in room 1")).check(learner, policy)
    assert probed["sync/logp_gap"] > 1e-2


def test_rollout_metrics_by_hand():
    groups = random_groups(groups=2, size=3, seed=1)
    steps = [s for g in groups for tr in g for s in tr.steps]
    steps[0].admissible = False
    steps[1].finish = "length"
    groups[1][0].family = "clean"
    metrics = rollout_metrics(groups)
    assert metrics["rollout/success"] == pytest.approx(2 / 6)
    assert metrics["rollout/success/clean"] == 0 and metrics["rollout/success/look"] == pytest.approx(2 / 5)
    assert metrics["rollout/mixed_groups"] == 1.0
    assert metrics["rollout/valid"] == metrics["rollout/admissible"] == pytest.approx(1 - 1 / len(steps))
    assert metrics["rollout/cut_responses"] == pytest.approx(1 / len(steps))
    assert metrics["rollout/tokens"] == sum(len(s.response_ids) for s in steps)
    with pytest.raises(ValueError, match="no steps to count"):
        rollout_metrics([])


def test_the_table_of_metrics_has_every_metric():
    table = render_table()
    assert len(table.splitlines()) == len(METRICS) + 2
    assert all(line.count("|") - line.count("\\|") == 4 for line in table.splitlines())


def test_progress_without_a_terminal_is_plain_lines():
    console = Console(file=io.StringIO(), width=40, soft_wrap=True, highlight=False)
    progress = ProgressPanel(40, 128, console)
    progress.stage(1, "rollout")
    progress.trajectories(3, 100)
    progress.line(1, {"rollout/success": 0.25, "time/update": 3.0, "time/rollout": 2.0})
    progress.evaluated(
        1, {"eval/success": 0.5, "eval/success_lo": 0.4, "eval/success_hi": 0.6, "eval/n": 100.0}
    )
    progress.close()
    header, line, evaluation = console.file.getvalue().splitlines()
    assert header.split()[:2] == ["update", "success"]
    assert line.split()[:2] == ["1/40", "25.0%"] and line.endswith("2.0/0.0/0.0/1.0")
    assert evaluation.endswith("success 50.0% [40.0%, 60.0%] of 100 tasks")
    assert "\x1b" not in console.file.getvalue()


def test_progress_on_a_terminal_cleans_up():
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    progress = ProgressPanel(2, 8, console)
    progress.stage(1, "rollout")
    progress.trajectories(3, 100)
    progress.line(1, {"rollout/success": 0.25})
    progress.close()
    progress.close()
    assert "25.0%" in console.file.getvalue()
    assert "\x1b[?25h" in console.file.getvalue()  # the cursor is shown again
