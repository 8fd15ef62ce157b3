"""Who votes: steps without a token under the loss abstain from credit, whoever masked them."""

from dataclasses import replace

import numpy as np
import pytest

from agent.rollout.groups import RolloutCounts
from agent.types import Trajectory
from commands.train_here import _check_votes
from configs.load import load
from configs.text import ConfigError
from credit.pipeline import Pipeline
from eval.replay.recorded import read_run, run_files
from rl.checkpoint import TrainState
from rl.collect import collect
from rl.learner.loss import LossOptions
from rl.rows.assemble import step_table, token_rows
from rl.settings import RolloutSettings, RunSchedule
from rl.tracking.progress import ProgressPanel
from rl.tracking.timing import Clock
from rl.tracking.tracker import read_metrics
from rl.tracking.trajectory_store import TrajectoryStore
from rl.update import Updater
from tests.rl.helpers import make_learner, pretrained_toy, step, toy_run
from tests.toy import ToyEnv, tiny_model, toy_tasks

DR_GRPO = Pipeline.from_config({"grpo": {"norm": "mean"}})


def member(index, reward, *finishes):
    steps = [step(t, [1, 2], [3, 4], fresh=True, finish=finish) for t, finish in enumerate(finishes)]
    steps[-1].reward = float(reward)
    return Trajectory("task", "look", "look", 0, index, 0, steps, success=reward > 0)


def test_a_member_cut_by_length_abstains():
    """Outcomes [1, 1, 0, 0], the second cut: the others are compared with 1/3, or as before with 1/2."""
    group = [member(0, 1, "stop"), member(1, 1, "length"), member(2, 0, "stop"), member(3, 0, "stop")]
    rows = token_rows([group], mask_truncated=True)
    abstaining = step_table([group], success_reward=1.0, voters=rows)
    assert abstaining.votes.tolist() == [True, False, True, True]
    assert DR_GRPO.run(abstaining).advantage.tolist() == pytest.approx([2 / 3, 0, -1 / 3, -1 / 3])
    assert step_table([group]).votes.all()
    voting = DR_GRPO.run(step_table([group], success_reward=1.0)).advantage
    assert voting.tolist() == pytest.approx([0.5, 0.5, -0.5, -0.5])
    unmasked = step_table([group], voters=token_rows([group], mask_truncated=False))
    assert unmasked.votes.all()


def test_a_member_with_a_response_left_votes():
    group = [member(0, 1, "length", "stop"), member(1, 0, "stop", "stop")]
    table = step_table([group], success_reward=1.0, voters=token_rows([group], mask_truncated=True))
    assert table.votes.tolist() == [False, True, True, True]
    assert DR_GRPO.run(table).advantage.tolist() == pytest.approx([0, 0.5, -0.5, -0.5])


def play_of(toy, **changes):
    return RolloutSettings(
        ToyEnv, toy_tasks(24, seed=1, rooms=2), toy.prompts, groups=4, group_size=4, **changes
    )


def an_update(masked_rows, loss, *, mangle=()):
    """One update of the toy policy; steps of the trajectories in `mangle` were sampled quite differently."""
    toy = pretrained_toy()
    learner = make_learner(toy.model.__class__(toy.model.config), loss=loss)
    learner.engine.model.load_state_dict(toy.model.state_dict())
    order, prepare, update = [], learner.prepare, learner.update

    def prepared(rows):
        order.append("prepare")
        far = [replace(row, logp_sampled=row.logp_sampled - 3.0 * (row.trajectory in mangle)) for row in rows]
        return prepare(far)

    def updated(rows, *args, **kwargs):
        order.append("update")
        return update(rows if not isinstance(rows, list) else prepared(rows), *args, **kwargs)

    learner.prepare, learner.update = prepared, updated
    credited = DR_GRPO.__class__.run

    class Told(Pipeline):
        def run(self, table, *args, **kwargs):
            order.append("credit")
            return credited(self, table, *args, **kwargs)

    updater = Updater(
        toy.policy(),
        learner,
        Told(DR_GRPO.stages),
        settings=play_of(toy, masked_rows=masked_rows),
        schedule=RunSchedule(1, seed=3),
    )
    return updater(TrainState(), Clock(1, ProgressPanel(1, 16))), order


MASK = LossOptions(mismatch="mask", mismatch_cap=2.0)


def test_what_the_sampler_got_wrong_is_known_before_credit():
    """All steps of two trajectories are masked: scored first, then the others are compared without them."""
    result, order = an_update("abstain", MASK, mangle={1, 6})
    assert order == ["prepare", "credit", "update"]
    table = result.table
    assert (~table.votes).tolist() == np.isin(table.trajectory, [1, 6]).tolist()
    assert result.metrics["train/mismatch_masked"] == pytest.approx(np.mean(~table.votes))
    assert result.metrics["credit/abstaining"] == pytest.approx(np.mean(~table.votes))
    first = np.flatnonzero(table.t == 0)
    outcome, group, votes = table.outcome[first], table.group[first], table.votes[first]
    for k, row in enumerate(first):
        peers = outcome[(group == group[k]) & votes]
        expected = outcome[k] - peers.mean() if votes[k] else 0.0
        assert result.credit.advantage[row] == pytest.approx(expected)
    assert set(outcome) == {0.0, 10.0}


def test_voting_is_what_was_before():
    result, order = an_update("vote", MASK, mangle={1, 6})
    assert order == ["credit", "update", "prepare"] and result.table.votes.all()
    assert result.metrics["train/mismatch_masked"] > 0 and "credit/abstaining" not in result.metrics
    plain, _ = an_update("vote", LossOptions(), mangle={1, 6})
    assert result.credit.advantage.tolist() == plain.credit.advantage.tolist()


@pytest.mark.parametrize("mismatch", ["off", "tis", "recompute"])
def test_nothing_is_scored_early_where_nothing_is_masked_by_it(mismatch):
    result, order = an_update("abstain", LossOptions(mismatch=mismatch))
    assert order.index("credit") == 0 and result.table.votes.all()


def test_a_run_that_masks_is_recorded_and_replayed_exactly(tmp_path):
    """A rollout one update old: some responses are too far from the learner; the file says which."""
    loss = LossOptions(mismatch="mask", mismatch_cap=1.2)
    credit = ("returns", "gigpo")
    options = dict(groups=4, group_size=4, staleness=1, lr=3e-3, masked_rows="abstain")
    toy_run(tmp_path, updates=3, loss=loss, credit=credit, **options)
    shares = [r.get("credit/abstaining", 0.0) for r in read_metrics(tmp_path / "metrics.jsonl")]
    pipeline, seen = Pipeline.from_config(dict.fromkeys(credit, {})), []
    for recorded in read_run(run_files(tmp_path), tokens=False):
        seen.append(float(np.mean(~recorded.table.votes)))
        assert pipeline.run(recorded.table).advantage.tolist() == recorded.advantage.tolist()
    assert seen == pytest.approx(shares) and max(seen) > 0


def test_files_from_before_votes_were_kept_are_read(tmp_path):
    import pyarrow.parquet as pq

    groups = [[member(0, 1, "stop"), member(1, 0, "stop")]]
    table = step_table(groups, voters=token_rows(groups)[:1])
    path = TrajectoryStore(tmp_path / "trajectories").write(1, groups, table, DR_GRPO.run(table))
    (recorded,) = read_run(run_files(tmp_path), tokens=True)
    assert recorded.table.votes.tolist() == [True, False]
    pq.write_table(pq.read_table(path).drop_columns(["votes"]), path)
    (recorded,) = read_run(run_files(tmp_path), tokens=True)
    assert recorded.table.votes.all() and recorded.advantage is not None


@pytest.mark.parametrize(("masked_rows", "kept"), [("abstain", 0), ("vote", 1)])
def test_a_group_is_chosen_by_those_who_vote(monkeypatch, masked_rows, kept):
    """One success of two, and cut: only with its vote is there a contrast to train on."""
    from rl import collect as module

    group = [member(0, 1, "length"), member(1, 0, "stop")]
    monkeypatch.setattr(module, "_play", lambda *args, **kwargs: ([group], RolloutCounts()))
    filters = Pipeline.from_config({"dynamic_sampling": {"max_batches": 1}, "grpo": {}}).filters
    settings = replace(play_of(pretrained_toy(), masked_rows=masked_rows), groups=1)
    passing = module._passing([group], filters, settings)
    assert len(passing) == kept
    assert collect(None, settings, filters, position=0, seed=0).groups == [
        group
    ]  # the last try is kept whole


def test_filters_cannot_wait_for_the_scores():
    def check(*overrides):
        config = load("alfworld_cpu", ["credit=dapo", *overrides]).config
        _check_votes(config, Pipeline.from_config(config.credit.stages, config.credit.name))

    with pytest.raises(ConfigError, match="dynamic_sampling chooses groups .* set train.masked_rows=vote"):
        check("train.mismatch=mask")
    check("train.mismatch=mask", "train.masked_rows=vote")
    check("train.mismatch=recompute")


def test_tiny_models_are_masked_in_whole():
    """Every response masked: nobody votes, nothing is trained on, nothing breaks."""
    group = [member(0, 1, "stop"), member(1, 0, "stop")]
    learner = make_learner(tiny_model(40, std=0.3), loss=MASK)
    rows = [replace(r, logp_sampled=r.logp_sampled - 50) for r in token_rows([group])]
    prepared = learner.prepare(rows)
    table = step_table([group], voters=prepared.rows)
    assert not table.votes.any()
    for method in ({"grpo": {}}, {"returns": {}, "gigpo": {}}, {"returns": {}, "hgpo": {}}):
        result = Pipeline.from_config(method).run(table)
        assert not result.advantage.any() and result.metrics["credit/abstaining"] == 1.0
    assert learner.update(prepared, result.advantage, update=1)["train/optimizer_steps"] == 0
