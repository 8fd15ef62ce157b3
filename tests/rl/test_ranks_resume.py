"""A checkpoint goes on with any number of processes as if their number had never changed."""

import json
from pathlib import Path

import pytest

from bench.ranks import Case, make_learner, make_update, on_ranks, train_case, weights_of
from rl.checkpoint import CheckpointError, Checkpoints, TrainState
from tests.toy import toy_tokenizer

pytest.importorskip("deepspeed")
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")
TOLERANCE = 1e-5


def part(cases, folder, updates):
    """On every rank: goes on from the newest checkpoint of each case, trains, saves; returns the weights."""
    results = []
    for number, case in enumerate(cases):
        learner = make_learner(case)
        ranks = learner.engine.channel()
        checkpoints = Checkpoints(
            Path(folder) / str(number), keep=2, tokenizer=toy_tokenizer(), config={}, ranks=ranks
        )
        newest = checkpoints.latest()
        state = checkpoints.restore(newest, learner) if newest else TrainState()
        for update in range(state.update + 1, state.update + 1 + updates):
            make_update(learner, update)
        checkpoints.save(learner, TrainState(update=state.update + updates))
        results.append((ranks.gather(state.update), learner.version, weights_of(learner)))
    return results


def compare(answers, cases, updates):
    for answer in answers:
        for case, (starts, version, weights) in zip(cases, answer, strict=True):
            assert len(set(starts)) == 1  # all ranks went on from the same checkpoint
            assert version == updates
            expected = train_case(Case(None, lora=case.lora, updates=updates)).weights
            worst = max(float(abs(weights[name] - expected[name]).max()) for name in expected)
            assert worst < TOLERANCE, case


CASES = [Case(stage, lora=lora) for stage in (0, 1, 2, 3) for lora in (False, True)] + [Case(2, offload=True)]


@pytest.mark.slow
def test_two_one_and_two_ranks_again(tmp_path):
    for ranks, done in ((2, 2), (1, 4), (2, 6)):
        compare(on_ranks(ranks, part, CASES, str(tmp_path), 2), CASES, done)
        left = [path.name for folder in tmp_path.iterdir() for path in folder.iterdir()]
        assert all(name.isdigit() for name in left), left  # nothing converted is left behind


@pytest.mark.slow
def test_bfloat16_goes_on_exactly(tmp_path):
    """Master weights and all: the same as without a stop, on the same number of ranks and on another."""
    cases = [Case(stage, dtype="bfloat16", lora=lora) for stage in (1, 2, 3) for lora in (False, True)]
    straight = on_ranks(2, part, cases, str(tmp_path / "straight"), 4)[0]
    on_ranks(2, part, cases, str(tmp_path / "stopped"), 2)
    same = on_ranks(2, part, cases, str(tmp_path / "stopped"), 2)[0]
    on_ranks(2, part, cases, str(tmp_path / "changed"), 2)
    other = on_ranks(1, part, cases, str(tmp_path / "changed"), 2)[0]
    for case, (_, _, a), (_, _, b), (_, _, c) in zip(cases, straight, same, other, strict=True):
        assert all((a[name] == b[name]).all() for name in a), case
        assert all(abs(a[name] - c[name]).max() < 2**-6 for name in a), case


@pytest.mark.slow
def test_stages_cut_alike_turn_into_each_other(tmp_path):
    on_ranks(2, part, [Case(1), Case(2, lora=True)], str(tmp_path), 2)
    turned = [Case(2), Case(1, lora=True)]
    compare(on_ranks(2, part, turned, str(tmp_path), 2), turned, 4)


def saved(folder, case):
    learner = make_learner(case)
    make_update(learner, 1)
    checkpoints = Checkpoints(folder, keep=2, tokenizer=toy_tokenizer(), config={})
    return checkpoints, checkpoints.save(learner, TrainState(update=1))


@pytest.mark.parametrize(("before", "now"), [(1, 3), (3, 2), (0, 1), (2, 0)])
def test_stages_cut_otherwise_are_refused(tmp_path, before, now):
    checkpoints, path = saved(tmp_path, Case(before))
    message = f"written with train.zero_stage={before}, and DeepSpeed cannot turn that into {now}"
    with pytest.raises(CheckpointError, match=message):
        checkpoints.restore(path, make_learner(Case(now)))


@pytest.mark.parametrize(("before", "now"), [(1, None), (None, 1)])
def test_another_engines_state_is_refused(tmp_path, before, now):
    checkpoints, path = saved(tmp_path, Case(before))
    with pytest.raises(CheckpointError, match="another engine wrote it"):
        checkpoints.restore(path, make_learner(Case(now)))


def test_a_state_that_cannot_be_converted_is_said(tmp_path):
    checkpoints, path = saved(tmp_path, Case(1))
    about = path / "deepspeed" / "shards.json"
    about.write_text(json.dumps({**json.loads(about.read_text()), "ranks": 2}))
    for shard in path.glob("deepspeed/state/*optim_states.pt"):
        shard.write_bytes(b"cut short")
    with pytest.raises(CheckpointError, match="cannot be converted for 1 ranks"):
        checkpoints.restore(path, make_learner(Case(1)))
    assert [one.name for one in tmp_path.iterdir()] == ["0001"]


def test_one_rank_of_another_count_goes_on(tmp_path):
    """Conversion itself, without a second process: the shards say they are of another run's ranks."""
    for number, case in enumerate([Case(1), Case(3, lora=True)]):
        folder = tmp_path / str(number)
        checkpoints, path = saved(folder, case)
        about = path / "deepspeed" / "shards.json"
        about.write_text(json.dumps({**json.loads(about.read_text()), "ranks": 2}))
        learner = make_learner(case)
        checkpoints.restore(path, learner)
        make_update(learner, 2)
        expected = train_case(Case(None, lora=case.lora, updates=2)).weights
        got = weights_of(learner)
        assert max(abs(got[name] - expected[name]).max() for name in expected) < TOLERANCE
        assert [one.name for one in folder.iterdir()] == ["0001"]
