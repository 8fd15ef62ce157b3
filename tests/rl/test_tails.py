"""The simulation of long tails against times computed by hand."""

import pytest

import bench.tails
from bench.tails import Generator, ahead, compare, in_turns, paper_shape, partial, recorded, rollout


@pytest.fixture(autouse=True)
def costs(monkeypatch):
    """A round takes 1 s whatever it holds, an environment nearly nothing; a context costs nothing."""
    monkeypatch.setattr(bench.tails, "ROUND_S", 1.0)
    monkeypatch.setattr(bench.tails, "RESPONSE_S", 0.0)
    monkeypatch.setattr(bench.tails, "ENV_S", 1e-9)
    monkeypatch.setattr(bench.tails, "READ_S", 0.0)


# One trajectory answers with 4 and 1 tokens, the other with 1 and 6.
CROSSED = [[[4, 1], [1, 6]]]
# Three steps of 2 tokens, and one of 20 steps.
TAILED = [[[2] * 3], [[2] * 3], [[2] * 3], [[2] * 20]]


def close(value):
    return pytest.approx(value, abs=1e-5)


def test_rounds_wait_for_the_longest_response_of_each_step_and_free_running_for_none():
    assert in_turns(CROSSED, 2, 0.0, together=True).seconds == close(2 * (4 + 6))
    # Free: the longer has 7 rounds. An environment's moment falls after a round, so a step may lose one.
    assert 2 * 7 <= in_turns(CROSSED, 2, 0.0, together=False).seconds <= 2 * 8 + 1e-5
    assert in_turns(CROSSED, 2, 5.0, together=True).seconds == close(2 * 15)


def test_a_response_costs_what_its_gpus_share_is(monkeypatch):
    monkeypatch.setattr(bench.tails, "RESPONSE_S", 0.5)
    assert rollout(Generator(2), [[[3], [3]]]) == close(3 * (1 + 0.5 * 2))
    assert rollout(Generator(2, share=0.25), [[[3], [3]]]) == close(3 * (1 + 0.5 * 2 / 0.25))


def test_the_learner_takes_half_of_shared_gpus_while_it_works():
    shared = ahead([[[10], [10]]], 1, 4.0, None)
    assert shared.seconds == close(10 + 4)  # nothing is lost and nothing won: no GPU stood still before
    # Learning longer than the rollout at half speed: 10 of its 14 s are done when the rollout ends.
    assert ahead([[[10], [10]]], 1, 14.0, None).seconds == close(2 * 10 + 4)


def test_apart_the_slower_side_sets_the_time_and_the_other_waits():
    spent = ahead([[[9], [9]]], 2, 3.0, 1)  # a quarter generates: 9 s; 3 s of learning take 4 s
    assert spent.seconds == close(2 * 9)
    assert spent.idle == close(2 * (9 - 4) * 0.75)
    spent = ahead([[[9], [9]]], 2, 30.0, 1)
    assert spent.seconds == close(2 * 40) and spent.idle == close(2 * (40 - 9) * 0.25)


def test_the_tail_is_the_time_with_fewer_than_half_of_the_trajectories(monkeypatch):
    monkeypatch.setattr(bench.tails, "batch", lambda groups, count, update: list(groups))
    spent = in_turns(TAILED, 1, 10.0, together=True)
    assert spent.seconds == close(2 * 20 + 10)
    assert spent.tail == close(2 * 17)


def test_partial_rollouts_finish_an_unfinished_group_under_later_weights(monkeypatch):
    """Update 1 begins with the group of 3 tokens; the other's second step ends under the next weights."""
    groups = {0: [[[3]], [[2, 2]]], 1: [[[5]]]}
    monkeypatch.setattr(bench.tails, "batch", lambda _, count, update: groups[update])
    spent = partial([[[1]]], 2, 10.0, warm=0)
    # Rounds 1 to 3 for the first, whose end is seen after round 4; then the learner; round 5 ends the second
    # group's last response, seen after round 6; the learner again. One of three steps is of older weights.
    assert spent.seconds == close(4 + 10 + 2 + 10)
    assert (spent.old, spent.age) == (pytest.approx(1 / 3), 1)


def test_recorded_lengths_are_whole_groups_of_the_cpu_default():
    for update in (1, 40):
        groups = recorded(update)
        assert [len(group) for group in groups] == [8] * 16
        steps = [steps for group in groups for steps in group]
        assert max(map(len, steps)) == 30 and all(1 <= n <= 32 for one in steps for n in one)
    shape = [steps for group in paper_shape(0.9) for steps in group]
    assert len(shape) == 128 and max(map(len, shape)) == 50


def test_every_way_is_compared_on_the_same_updates():
    found = compare(CROSSED, 2, 1.0)
    assert found["(b) free"].seconds < found["(a) rounds"].seconds
    assert found["(c) apart"].old == 1.0 and found["(a) rounds"].old == 0.0
