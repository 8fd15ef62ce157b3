"""Ranks that hold a generator together: one plays, the others do what it does, and nothing passes unseen."""

import random
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from agent.policy import Policy, PolicyError, Sampling
from agent.prompts.builder import PromptBuilder, load_template
from agent.prompts.turns import TurnFormat
from agent.ranks import Alone
from agent.rollout.groups import RolloutError
from agent.rollout.options import RolloutOptions
from agent.rollout.over_ranks import play_shared, scaled
from agent.rollout.rollout import Rollout
from agent.team_policy import TeamPolicy
from agent.types import Request
from envs.base import EnvError
from tests.agent.streaming import ShuffledPool
from tests.agent.threads import ThreadRanks
from tests.toy import ScriptedPolicy, ToyEnv, scripted_expert, toy_tasks, toy_tokenizer

TOKENIZER = toy_tokenizer()
PROMPTS = PromptBuilder(TurnFormat(TOKENIZER), "append", load_template("alfworld_bare"), 2, 4000, 40)


class Recording(ScriptedPolicy):
    """Keeps what it was asked for; a response started takes as many rounds as its key says."""

    def __init__(self, script):
        super().__init__(TOKENIZER, script)
        self.asked, self._flight = [], {}

    def generate(self, requests, sampling):
        self.asked.append(("generate", list(requests)))
        return super().generate(requests, sampling)

    def start(self, requests, sampling):
        self.asked.append(("start", list(requests)))
        self._flight |= {request.key: [1 + request.key % 3, request] for request in requests}

    def advance(self):
        self.asked.append("advance")
        for waits in self._flight.values():
            waits[0] -= 1
        ended = [key for key, (rounds, _) in self._flight.items() if not rounds]
        return [(key, self._answer(self._flight.pop(key)[1])) for key in ended]

    def release(self, key):
        self.asked.append(("release", key))
        self._flight.pop(key, None)
        super().release(key)


class Refuses(ToyEnv):
    def reset(self, task, seed):
        if task.id == toy_tasks(5)[3].id:
            raise EnvError("no such room")
        return super().reset(task, seed)


def on_teams(ranks, size, work):
    """What `work(rank's channel, its team's channel)` returned or raised, on every rank."""
    values, barrier = [None] * ranks, threading.Barrier(ranks)
    own = [([None] * size, threading.Barrier(size)) for _ in range(ranks // size)]
    with ThreadPoolExecutor(ranks) as pool:
        futures = [
            pool.submit(work, ThreadRanks(r, values, barrier), ThreadRanks(r % size, *own[r // size]))
            for r in range(ranks)
        ]
        return [future.exception() or future.result() for future in futures]


def rollout(policy, part, make_env=ToyEnv, mode="free"):
    """Environments answer in another order on every rank."""
    return Rollout(
        policy,
        Sampling(),
        ShuffledPool(make_env, random.randrange(2**31)),
        toy_tasks(5),
        group_size=2,
        prompts=PROMPTS,
        max_parallel=4,
        seed=1,
        options=RolloutOptions(mode=mode),
        part=part,
    )


@pytest.mark.parametrize("mode", ["free", "deterministic"])
@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize(("ranks", "size"), [(2, 2), (4, 2), (6, 3), (3, 1)])
def test_teams_play_what_one_process_plays_and_all_of_a_team_are_asked_for_the_same(ranks, size, whole, mode):
    alone, counts = play_shared(lambda part: rollout(Recording(scripted_expert(0.4)), part), Alone(), 2)

    def work(run, team):
        own = Recording(scripted_expert(0.4))
        policy = TeamPolicy(own, team)
        shared = play_shared(
            lambda part: rollout(policy, part, mode=mode), run, 2, policy=policy, whole=whole
        )
        return shared, own.asked

    found = on_teams(ranks, size, work)
    for rank, (shared, calls) in enumerate(found):
        assert shared == (alone, counts)
        assert calls == found[rank - rank % size][1], "as the first of its team"
    heads = [calls for _, calls in found[::size]]
    assert all(heads)
    assert all(a != b for i, a in enumerate(heads) for b in heads[:i]), "teams share the work"


def test_an_environment_that_ends_the_rollout_ends_it_for_followers_too():
    def work(run, team):
        policy = TeamPolicy(Recording(scripted_expert(0.4)), team)
        return play_shared(lambda part: rollout(policy, part, Refuses), run, 2, policy=policy)

    for error in on_teams(4, 2, work):
        assert isinstance(error, RolloutError) and "no such room" in str(error)


def requests(keys=range(3)):
    return [Request(key, [5, 6, key], True, key, 8) for key in keys]


def test_a_rank_that_samples_another_token_ends_the_run():
    """As two cards that compute different numbers would; the next message finds out."""

    def work(run, team):
        policy = TeamPolicy(Recording(lambda prompt, rng: "go left" if team.rank else "go right"), team)
        if team.rank:
            policy.follow()
            return
        with policy.leading():
            policy.generate(requests(), Sampling())

    first, second = on_teams(2, 2, work)
    assert first is None
    assert isinstance(second, PolicyError) and "rank 1 of a tensor-parallel team has sampled other" in str(
        second
    )


def test_outside_of_a_rollout_ranks_ask_for_themselves_and_send_nothing():
    """Weights are handed over by all at once: messages would wait for nobody."""

    class Silent(Alone):
        size = 2

        def share(self, value):
            raise AssertionError("nobody listens")

    policy = TeamPolicy(Recording(scripted_expert(0.4)), Silent())
    asked = requests([7])
    made = policy.generate(asked, Sampling())
    policy.release(7)
    assert made == ScriptedPolicy(TOKENIZER, scripted_expert(0.4)).generate(asked, Sampling())


def test_progress_counts_the_teams_that_play():
    told = []

    def work(run, team):
        return scaled(lambda *at: told.append(at), run, TeamPolicy(Recording(None), team))

    on_teams(4, 2, work)[0](3, 10)
    assert told == [(6, 20)]


def test_it_has_all_that_is_asked_of_a_policy():
    """The learner asks before it hands over adapters; a team is given merged weights."""
    asked = {name for name in (*Policy.__annotations__, *vars(Policy)) if not name.startswith("_")}
    assert asked <= set(dir(TeamPolicy))
    assert TeamPolicy.takes_adapters is False
