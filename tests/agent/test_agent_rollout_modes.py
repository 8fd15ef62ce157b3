"""The event loop: against a plain loop of its own, with replies out of order, and with nobody waiting."""

from dataclasses import replace

import numpy as np
import pytest

from agent.policies.torch_policy import TorchPolicy
from agent.policy import Sampling
from agent.prompts.parse import parse
from agent.rollout.options import RolloutOptions
from agent.rollout.rollout import Rollout, rollout
from agent.types import Request, Step, Trajectory
from bench.rollout import simulated
from configs.seeds import derive
from tests.agent.rows import worst_disagreement
from tests.agent.streaming import LatePool, ShuffledPool, StreamingPolicy
from tests.agent.test_agent_rollout import MODEL, TOKENIZER, TURNS, build, play, scripted, torch_policy
from tests.toy import ToyEnv, scripted_expert, toy_tasks

FREE = RolloutOptions(mode="free")


def streaming(error=0.3):
    return StreamingPolicy(TOKENIZER, scripted_expert(error))


def plain_loop(policy, prompts, tasks, *, group_size, max_parallel, seed):
    """What the deterministic mode must equal bit by bit: rounds of one batch, then one step each."""
    waiting = [(g, k) for g in range(len(tasks)) for k in range(group_size)]
    groups, live = [[] for _ in tasks], []
    while waiting or live:
        while waiting and len(live) < max_parallel:
            g, k = waiting.pop(0)
            env = ToyEnv()
            seen = env.reset(tasks[g], derive(seed, "env", g))
            talk = prompts.start(env.instruction)
            record = Trajectory(
                tasks[g].id, tasks[g].family, env.instruction, g, k, derive(seed, "trajectory", g, k)
            )
            groups[g].append(record)
            live.append([g * group_size + k, env, talk, record, seen, *talk.prompt(seen)])
        requests = [
            Request(key, ids, fresh, derive(tr.seed, len(tr.steps)), prompts.max_response_tokens)
            for key, _, _, tr, _, ids, fresh in live
        ]
        generations = policy.generate(requests, Sampling())
        staying = []
        for (key, env, talk, tr, seen, ids, fresh), made in zip(live, generations, strict=True):
            text = prompts.turns.decode(made.ids)
            said = parse(text)
            outcome = env.step(said.action)
            tr.steps.append(
                Step(
                    len(tr.steps),
                    seen,
                    ids,
                    fresh,
                    made.ids,
                    made.logps,
                    made.finish,
                    policy.version,
                    text,
                    said.thought,
                    said.action,
                    said.well_formed,
                    said.action in seen.admissible,
                    outcome.reward,
                    outcome.observation,
                )
            )
            if outcome.done:
                tr.success, tr.score, tr.truncated = outcome.success, outcome.score, outcome.truncated
                policy.release(key)
            else:
                talk.record(made.ids, said.action)
                staying.append([key, env, talk, tr, outcome.observation, *talk.prompt(outcome.observation)])
        live = staying
    return groups


@pytest.mark.parametrize("form", ["append", "stepwise"])
@pytest.mark.parametrize("max_parallel", [3, 16])
@pytest.mark.parametrize("pool", [LatePool, ShuffledPool, None])
def test_deterministic_rollouts_equal_a_plain_loop_to_the_last_bit(form, max_parallel, pool):
    window = 150 if form == "append" else 1500  # short rows restart
    prompts = build(form, "alfworld_bare" if form == "append" else "alfworld", window, 8)
    tasks = toy_tasks(3)
    expected = plain_loop(
        torch_policy(max_parallel), prompts, tasks, group_size=3, max_parallel=max_parallel, seed=0
    )
    environments = {
        None: lambda: ToyEnv,
        ShuffledPool: lambda: ShuffledPool(ToyEnv),
        LatePool: lambda: LatePool(ToyEnv, late={0, 4, 5}, rounds=3),
    }[pool]()
    played = play(
        torch_policy(max_parallel),
        prompts,
        tasks=3,
        group_size=3,
        max_parallel=max_parallel,
        make_env=environments,
    )
    assert played == expected  # log-probabilities included, exactly


@pytest.mark.parametrize("max_parallel", [1, 5, 64])
def test_free_running_plays_the_same_where_arithmetic_is_exact(max_parallel):
    prompts = build()
    expected = play(streaming(), prompts, max_parallel=8)
    for pool in (LocalOf(ToyEnv), ShuffledPool(ToyEnv, seed=max_parallel), LatePool(ToyEnv, {1, 2, 9}, 7)):
        policy = streaming()
        free = play(policy, prompts, max_parallel=max_parallel, make_env=pool, options=FREE)
        assert free == expected
        assert policy.live == set() and pool.outstanding == 0


def LocalOf(make_env):
    return LatePool(make_env, late=(), rounds=0)


def test_free_running_with_a_model_samples_the_same_tokens_and_the_learners_log_probabilities():
    prompts = build(response=8)
    expected = play(torch_policy(), prompts, tasks=3)
    free = play(
        torch_policy(6), prompts, tasks=3, max_parallel=6, make_env=ShuffledPool(ToyEnv), options=FREE
    )
    assert worst_disagreement(MODEL, free, 1.0) < 1e-5
    flat = lambda groups: [s.response_ids for g in groups for tr in g for s in tr.steps]  # noqa: E731
    # A draw within rounding of a boundary may fall to either side; with these seeds none does.
    assert flat(free) == flat(expected)


def test_a_slow_environment_delays_nobody():
    """One environment answers 200 rounds late each time; the others are through long before."""
    policy, order = streaming(error=1.0), []
    pool = LatePool(ToyEnv, late={0}, rounds=200)
    running = Rollout(
        policy,
        Sampling(),
        pool,
        toy_tasks(8),
        group_size=1,
        prompts=build(),
        max_parallel=8,
        seed=0,
        options=FREE,
        on_group=lambda group: order.append(group[0].group),
    )
    running.play()
    assert order[-1] == 0 and sorted(order) == list(range(8))
    # Everybody else was decoding at once, and the last of them was through within a few responses' rounds.
    alone = policy.rounds.index(1)
    assert alone < 9 * 8 * 2 and max(policy.rounds) == 7  # the late one opens late, too


def test_a_hundred_times_slower_environment_costs_less_than_a_twentieth_of_the_throughput():
    """On the benchmark's simulated clock, so the figure is the loop's and the same everywhere."""
    even, slowed = (simulated("free", slow, trajectories=256, parallel=64) for slow in ((), (0,)))
    assert 0.95 * even < slowed < even


def test_responses_in_flight_never_exceed_the_seats_and_the_finished_cost_nothing():
    policy = streaming()
    groups = play(policy, build(), tasks=10, max_parallel=6, options=FREE)
    assert max(policy.rounds) == 6
    assert len(policy.requests) == sum(len(tr.steps) for g in groups for tr in g)
    tokens = sum(len(s.response_ids) for g in groups for tr in g for s in tr.steps)
    assert sum(policy.rounds) == tokens  # a round decodes one token of each in flight, and no other


@pytest.mark.parametrize("options", [RolloutOptions(), FREE])
def test_members_start_together_and_progress_is_told(options):
    told, opened = [], []

    class Noting(ShuffledPool):
        def _open(self, key):
            opened.append(self._traces[key].task.id)
            super()._open(key)

    groups = play(
        streaming(), build(), make_env=Noting(ToyEnv), options=options, on_progress=lambda *x: told.append(x)
    )
    assert opened == [task.id for task in toy_tasks(5) for _ in range(4)]
    assert told == sorted(told) and told[-1] == (20, sum(tr.tokens_sampled for g in groups for tr in g))


def mixed(groups):
    return [g[0].group for g in groups if len({tr.success for tr in g}) == 2]


@pytest.mark.parametrize("options", [RolloutOptions(), FREE])
def test_groups_that_nobody_needs_any_more_are_left_out_whatever_ends_first(options):
    """Wanted: the first two mixed groups. What is chosen is what the whole rollout would give."""
    prompts = build()
    everything = play(streaming(0.6), prompts, tasks=12, group_size=3)
    last = mixed(everything)[1]
    assert last < 9  # so that something is saved
    passing = []

    def on_group(group):
        passing.extend(mixed([group]))
        return sorted(passing)[1] + 1 if len(passing) > 1 else None

    policy = streaming(0.6)
    running = Rollout(
        policy,
        Sampling(),
        LatePool(ToyEnv, late={0, 1}, rounds=40),
        toy_tasks(12),
        group_size=3,
        prompts=prompts,
        max_parallel=9,
        seed=0,
        options=options,
        on_group=on_group,
    )
    assert running.play() == everything[: last + 1]
    assert running.counts.stopped == 12 - last - 1
    assert len(policy.requests) < sum(len(tr.steps) for g in everything for tr in g)
    assert policy.live == set()


def test_a_pool_that_is_given_stays_open_and_is_left_empty():
    pool = ShuffledPool(ToyEnv)
    first = play(streaming(), build(), make_env=pool)
    assert play(streaming(), build(), make_env=pool) == first
    pool.open(0, toy_tasks(1)[0], 0)  # every key is free again


def test_continuous_batching_equals_generate():
    """Requests that arrive one by one get the ids and, up to rounding, the log-probabilities of a batch."""
    rng = np.random.default_rng(0)
    asked = [
        Request(key, rng.integers(4, 300, rng.integers(2, 40)).tolist(), True, key, 12) for key in range(20)
    ]
    expected = torch_policy().generate(asked, Sampling())
    policy = TorchPolicy(MODEL, TURNS.stop_ids, window=1500, max_parallel=7)
    found, waiting = {}, list(asked)
    while len(found) < len(asked):
        if waiting:
            policy.start([waiting.pop(0) for _ in range(min(3, len(waiting)))], Sampling())
        found.update(policy.advance())
    for request, want in zip(asked, expected, strict=True):
        got = found[request.key]
        assert (got.ids, got.finish) == (want.ids, want.finish)
        assert got.logps == pytest.approx(want.logps, abs=1e-5)
    assert policy.advance() == []


def test_rollout_is_the_same_as_its_class():
    arguments = (Sampling(), ToyEnv, toy_tasks(2))
    options = dict(group_size=2, prompts=build(), max_parallel=4, seed=1)
    assert rollout(scripted(), *arguments, **options) == Rollout(scripted(), *arguments, **options).play()
    assert replace(FREE, mode="deterministic") == RolloutOptions()
