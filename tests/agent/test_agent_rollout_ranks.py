"""Rollouts and evaluations shared by ranks give what one process gives."""

from functools import partial

import pytest

from agent.policy import Sampling
from agent.prompts.builder import PromptBuilder, load_template
from agent.prompts.turns import TurnFormat
from agent.ranks import Alone
from agent.rollout.groups import RolloutError
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


def rollout(places, make_env=ToyEnv, on_failure="stop"):
    tasks = toy_tasks(5)
    return Rollout(
        scripted(),
        Sampling(),
        make_env,
        [tasks[place] for place in places],
        group_size=2,
        prompts=PROMPTS,
        max_parallel=4,
        seed=1,
        numbers=[10 + place for place in places],
        options=RolloutOptions(on_failure=on_failure),
    )


@pytest.mark.parametrize("size", [2, 3, 7])  # 7: more ranks than groups
def test_every_rank_gets_what_one_process_plays(size):
    groups, counts = play_shared(5, rollout, Alone())
    assert [group[0].group for group in groups] == [10, 11, 12, 13, 14]
    for shared in on_ranks(size, partial(play_shared, 5, rollout)):
        assert shared == (groups, counts)


def test_failures_are_counted_over_all_ranks():
    def make(places):
        return rollout(places, Refuses, "drop")

    groups, counts = play_shared(5, make, Alone())
    assert counts.failed.total() == 1 and list(counts.lost) == [toy_tasks(5)[3].id]
    for shared in on_ranks(2, partial(play_shared, 5, make)):
        assert shared == (groups, counts)


def test_an_environment_that_ends_the_rollout_of_one_rank_ends_all():
    found = on_ranks(2, partial(play_shared, 5, lambda places: rollout(places, Refuses)))
    for error in found:
        assert isinstance(error, RolloutError)
        assert str(error).startswith("rank 1: ") and "no such room" in str(error)


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
