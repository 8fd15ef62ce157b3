"""Rollouts and evaluations shared by ranks give what one process gives."""

import itertools
from functools import partial

import pytest

from agent.policy import Sampling
from agent.prompts.builder import PromptBuilder, load_template
from agent.prompts.turns import TurnFormat
from agent.ranks import Alone
from agent.rollout.groups import Part, RolloutError, Roster
from agent.rollout.options import RolloutOptions
from agent.rollout.over_ranks import play_shared, scaled
from agent.rollout.rollout import Rollout
from credit.stages.dynamic_sampling import DynamicSampling
from envs.base import EnvError
from eval.evaluate import evaluate
from eval.result import EvalError
from rl.collect import collect
from rl.settings import RolloutSettings
from tests.agent.threads import on_ranks
from tests.toy import ScriptedPolicy, ToyEnv, scripted_expert, toy_tasks, toy_tokenizer

TOKENIZER = toy_tokenizer()
PROMPTS = PromptBuilder(TurnFormat(TOKENIZER), "append", load_template("alfworld_bare"), 2, 4000, 40)


class Refuses(ToyEnv):
    """Fails on one task."""

    def reset(self, task, seed):
        if task.id == toy_tasks(5)[3].id:
            raise EnvError("no such room")
        return super().reset(task, seed)


def scripted():
    return ScriptedPolicy(TOKENIZER, scripted_expert(0.4))


def rollout(part, make_env=ToyEnv, on_failure="stop", group_size=2):
    return Rollout(
        scripted(),
        Sampling(),
        make_env,
        toy_tasks(5),
        group_size=group_size,
        prompts=PROMPTS,
        max_parallel=4,
        seed=1,
        numbers=range(10, 15),
        options=RolloutOptions(on_failure=on_failure),
        part=part,
    )


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("size", [2, 3, 7, 12])  # 12: more ranks than trajectories
def test_every_rank_gets_what_one_process_plays(size, whole):
    groups, counts = play_shared(rollout, Alone(), 2)
    assert [group[0].group for group in groups] == [10, 11, 12, 13, 14]
    for shared in on_ranks(size, partial(play_shared, rollout, group_size=2, whole=whole)):
        assert shared == (groups, counts)


@pytest.mark.parametrize("group_size", [1, 2, 3, 8])
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_the_parts_are_the_whole_and_nearly_equal(size, group_size):
    """Every trajectory is dealt to one part; no part has two more than another, or two more of a group."""
    parts = [Part(rank, size) for rank in range(size)]
    dealt = [{(g, k) for g in range(6) for k in part.members(g, group_size)} for part in parts]
    assert sorted(pair for some in dealt for pair in some) == [
        (g, k) for g in range(6) for k in range(group_size)
    ]
    assert max(map(len, dealt)) - min(map(len, dealt)) <= 1
    for g in range(6):
        counts = [len(part.members(g, group_size)) for part in parts]
        assert max(counts) - min(counts) <= 1
        whole = [Part(rank, size, whole=True).members(g, group_size) for rank in range(size)]
        assert sorted(map(len, whole)) == [0] * (size - 1) + [group_size]


@pytest.mark.parametrize("group_size", [1, 2, 3, 8])
@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("size", [2, 3])
def test_failures_are_counted_over_all_ranks(size, whole, group_size):
    """A group that fails everywhere is lost once, on every rank; the others are whole."""
    make = partial(rollout, make_env=Refuses, on_failure="drop", group_size=group_size)
    groups, _ = play_shared(make, Alone(), group_size)
    assert len(groups) == 4
    work = partial(play_shared, make, group_size=group_size, whole=whole)
    for shared, counted in on_ranks(size, work):
        assert shared == groups
        assert list(counted.lost) == [toy_tasks(5)[3].id] and not counted.dropped
        assert "no such room" in counted.lost[toy_tasks(5)[3].id]


@pytest.mark.parametrize(("survivors", "kept"), [(3, True), (2, True), (1, False), (0, False)])
def test_a_group_is_judged_by_the_members_of_all_ranks(survivors, kept):
    """Members of a group of four fail on two ranks; with two left there is something to compare."""

    class Breaks(ToyEnv):
        count = itertools.count()

        def reset(self, task, seed):
            if task.id == toy_tasks(5)[3].id and next(self.count) >= survivors:
                raise EnvError("no such room")
            return super().reset(task, seed)

    make = partial(rollout, make_env=Breaks, on_failure="drop", group_size=4)
    (groups, counts), (others, counted) = on_ranks(2, partial(play_shared, make, group_size=4))
    assert groups == others and counts == counted
    assert [len(group) for group in groups] == ([4, 4, 4, survivors, 4] if kept else [4] * 4)
    assert counts.failed.total() == 4 - survivors
    assert list(counts.lost) == ([] if kept else [toy_tasks(5)[3].id])
    lost = 0 if kept else survivors
    assert (counts.unplayed > 0) == (lost > 0)


@pytest.mark.parametrize("option", [{"on_failure": "reroll"}, {"on_group": lambda group: None}])
def test_what_must_see_whole_groups_refuses_parts_of_them(option):
    with pytest.raises(ValueError, match="whole groups"):
        Roster(toy_tasks(5), 2, seed=1, part=Part(0, 2), **option)
    Roster(toy_tasks(5), 2, seed=1, part=Part(0, 2, whole=True), **option)


def test_an_environment_that_ends_the_rollout_of_one_rank_ends_all():
    found = on_ranks(3, partial(play_shared, partial(rollout, make_env=Refuses, group_size=1), group_size=1))
    for error in found:
        assert isinstance(error, RolloutError)
        assert str(error).startswith("rank 0: ") and "no such room" in str(error)


def test_progress_counts_for_all():
    told = []
    scaled(lambda done, tokens: told.append((done, tokens)), on_ranks(2, lambda ranks: ranks)[0])(3, 10)
    assert told == [(6, 20)]
    assert scaled(None, Alone()) is None


def play(ranks):
    return RolloutSettings(
        ToyEnv, toy_tasks(20), PROMPTS, groups=4, group_size=3, max_parallel=6, ranks=ranks
    )


@pytest.mark.parametrize("refill", ["missing", "batch", "batch_all"])
def test_filters_judge_all_groups_together(refill):
    """Groups dropped and drawn again are those of one process, whoever played them."""

    def work(ranks):
        filters = [DynamicSampling(refill=refill, max_batches=4)]
        collected = collect(scripted(), play(ranks), filters, position=0, seed=2)
        return collected.groups, collected.extra_tasks, collected.metrics

    alone = work(Alone())
    assert alone[1] > 0  # something was dropped
    for found in on_ranks(3, work):
        assert found == alone


@pytest.mark.parametrize("samples", [1, 3])
def test_an_evaluation_is_whole_on_every_rank(samples):
    def work(ranks, make_env=ToyEnv):
        return evaluate(
            scripted(),
            make_env,
            toy_tasks(7),
            PROMPTS,
            sampling=Sampling(),
            seed=0,
            max_parallel=2,
            samples=samples,
            ranks=ranks,
        )

    alone = work(Alone())
    assert len(alone.tasks) == 7 * samples
    for found in on_ranks(3, work):
        assert found.tasks == alone.tasks
    for error in on_ranks(2, partial(work, make_env=Refuses)):
        assert isinstance(error, EvalError) and "1 of 7 tasks could not be played" in str(error)
