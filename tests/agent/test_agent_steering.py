"""Steered rollouts: the seam, and what T2PO and CoPO do with it, on scripts whose course is known."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from agent.policy import Sampling
from agent.rollout.rollout import Rollout, rollout
from agent.steering.base import ActOn, AskAgain
from agent.steering.choose import STEERINGS, steering
from agent.steering.copo import CopoSteering
from configs.seeds import derive
from credit.base import Steer
from credit.pipeline import Pipeline
from credit.registry import all_stages
from credit.stages.copo import CoPO
from tests.agent.rows import token_rows as rows_of
from tests.agent.rows import worst_disagreement
from tests.agent.steered import BOTH, random_actions, steered
from tests.agent.streaming import StreamingPolicy
from tests.agent.test_agent_rollout import MODEL, TOKENIZER, TURNS, build, torch_policy
from tests.toy import ToyEnv, toy_tasks


class Wish:
    """Answers again until the action is wished for, `limit` times at most; may begin answers itself."""

    top = 0

    def __init__(self, wished, limit=50, opening="", keep=None):
        self.wished, self.limit, self.opening, self.keep = wished, limit, opening, keep

    def pilot(self, turns):
        return self

    def decide(self, trajectory, tries):
        newest = tries[-1]
        if self.wished in TURNS.decode(newest.generation.ids) or len(tries) > self.limit:
            chosen = newest.generation if self.keep is None else tries[self.keep].generation
            return ActOn(chosen, unplayed=tuple(range(len(tries) - 1)))
        return AskAgain(tuple(TURNS.encode(self.opening)))


@BOTH
def test_a_pilot_that_answers_again_gets_other_draws_and_plays_the_last(mode):
    policy = StreamingPolicy(TOKENIZER, random_actions)
    groups = steered(policy, Wish("go left"), mode)
    for step in (s for g in groups for tr in g for s in tr.steps):
        assert step.action == "go left"
        assert all("go left" not in TURNS.decode(unplayed.ids) for unplayed in step.unplayed)
    first = groups[0][0]
    asked = [r for r in policy.requests if r.key == 0][: len(first.steps[0].unplayed) + 1]
    assert [r.seed for r in asked] == [
        derive(first.seed, 0, *(("again", n) if n else ())) for n in range(len(asked))
    ]
    assert all(r.keep == len(first.steps[0].prompt_ids) and not r.ids for r in asked[1:])
    assert policy.live == set()


def test_tokens_of_answers_that_were_not_played_are_counted():
    policy = StreamingPolicy(TOKENIZER, random_actions)
    running = Rollout(
        policy,
        Sampling(),
        ToyEnv,
        toy_tasks(2),
        group_size=2,
        prompts=build(),
        max_parallel=3,
        seed=0,
        steering=Wish("go left"),
    )
    unplayed = [unplayed for g in running.play() for tr in g for s in tr.steps for unplayed in s.unplayed]
    assert running.counts.unplayed == sum(len(one.ids) for one in unplayed) > 0


@BOTH
@pytest.mark.parametrize("form", ["append", "stepwise"])
def test_tokens_recorded_are_those_the_policy_saw_whatever_was_tried_between(mode, form):
    """With a model: answered again three times, the first try played, so the policy's row must go back."""
    hand = Wish("nothing is like this", limit=3, opening="<think>", keep=0)
    prompts = build(form, "alfworld_bare" if form == "append" else "alfworld", 1500, 10)
    groups = steered(torch_policy(4), hand, mode, prompts=prompts)
    assert worst_disagreement(MODEL, groups, 1.0) < 1e-5
    assert all(len(step.unplayed) == 3 for g in groups for tr in g for step in tr.steps)
    plain = rollout(
        torch_policy(4),
        Sampling(),
        ToyEnv,
        toy_tasks(2),
        group_size=2,
        prompts=prompts,
        max_parallel=3,
        seed=0,
    )
    ids = lambda groups: [s.response_ids for g in groups for tr in g for s in tr.steps]  # noqa: E731
    assert ids(groups) == ids(plain)  # the tries left no trace


def test_spare_answers_have_the_log_probabilities_of_what_they_saw():
    groups = steered(torch_policy(4), CopoSteering(CoPO()), prompts=build(response=16))
    for ids, spans in rows_of(groups):
        for start, step in spans:
            assert len(step.unplayed) == 3
            for unplayed in step.unplayed:
                seen = [*ids[:start], *unplayed.opening]
                alone = replace(
                    step, prompt_ids=seen, fresh=True, response_ids=unplayed.ids, logp_sampled=unplayed.logps
                )
                assert worst_disagreement(MODEL, [[SimpleNamespace(steps=[alone])]], 1.0) < 1e-5


def test_every_steering_stage_has_its_class_and_a_method_has_one():
    names = {name for name, stage in all_stages().items() if issubclass(stage, Steer)}
    assert names == {*STEERINGS, "tree_search"}  # which makes updates of its own, see rl.search.searcher
    assert steering(()) is None
    with pytest.raises(ValueError, match="at most one steering stage"):
        Pipeline.from_config({"t2po": {}, "copo": {}, "returns": {}, "grpo": {}})
