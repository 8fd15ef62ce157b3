"""Continuations on the toy corridor, where what a segment is worth can be worked out by hand."""

from dataclasses import replace

import pytest

from agent.policy import Sampling
from agent.prompts.builder import PromptBuilder, load_template
from agent.prompts.turns import TurnFormat
from agent.rollout.rollout import rollout
from credit.parts.continuations import Candidate, Segment
from credit.pipeline import Pipeline
from envs.alfworld import AlfworldEnv
from envs.alfworld.generate import generate_games
from envs.base import EnvError
from rl.probes.continuations import Continuations
from rl.rows.assemble import step_table
from rl.settings import RolloutSettings
from rl.tracking.metrics import describe
from tests.agent.streaming import ShuffledPool
from tests.toy import (
    ScriptedPolicy,
    ToyEnv,
    ToyTask,
    expert_action,
    respond,
    scripted_expert,
    toy_tokenizer,
)

TOKENIZER = toy_tokenizer()
NEAR = ToyTask("near-0", "near", "train", rooms=2, start=1, key=1)
SHORTEST = ("take key", "go right", "open door")
POOLS = pytest.mark.parametrize("pool", [None, ShuffledPool], ids=["in process", "in any order"])
BOTH_FORMS = pytest.mark.parametrize(
    ("form", "template"), [("append", "alfworld_bare"), ("stepwise", "alfworld")]
)


class Recorder(ScriptedPolicy):
    """Keeps the requests it gets."""

    def __init__(self, script):
        super().__init__(TOKENIZER, script)
        self.requests = []

    def generate(self, requests, sampling):
        self.requests += requests
        return super().generate(requests, sampling)


def five_steps():
    return ToyEnv(max_steps=5)


def make_play(form="append", template="alfworld_bare", *, make_env=five_steps, window=4000, tasks=(NEAR,)):
    prompts = PromptBuilder(TurnFormat(TOKENIZER), form, load_template(template), 2, window, 40)
    return RolloutSettings(make_env, tasks, prompts, groups=len(tasks), group_size=1, max_parallel=5)


def record(actions, settings):
    """One trajectory of exactly these commands (until it ends)."""
    given = iter(actions)
    return rollout(
        ScriptedPolicy(TOKENIZER, lambda text, rng: respond(next(given))),
        Sampling(1.0),
        settings.environments,
        settings.tasks,
        group_size=1,
        prompts=settings.prompts,
        max_parallel=1,
        seed=0,
    )


def verify(script, groups, settings, *places, samples=3, pool=None):
    policy = Recorder(script)
    if pool is not None:
        settings = replace(settings, environments=pool(settings.environments))
    service = Continuations(policy, groups, settings, seed=0)
    segments = service.segments(step_table(groups), [Candidate(0, a, b) for a, b in places], samples)
    assert policy.live == set()
    assert pool is None or not settings.environments._traces
    return segments, service, policy


def cannot_take(text, rng):
    """The expert, but for the one command that matters."""
    action = expert_action(text)
    return respond("go right" if action == "take key" else action)


@POOLS
@BOTH_FORMS
def test_the_step_that_the_policy_cannot_do_is_worth_everything(form, template, pool):
    settings = make_play(form, template)
    groups = record(SHORTEST, settings)
    segments, service, _ = verify(cannot_take, groups, settings, (0, 1), (1, 2), pool=pool)
    assert segments == [
        Segment(0, 0, 1, gain=1.0, before=0.0, after=1.0, samples=3),
        Segment(0, 1, 2, gain=0.0, before=1.0, after=1.0, samples=3),
    ]
    assert service.metrics["probe/continuations/trajectories"] == 9  # three states, one of them shared
    assert set(service.metrics) == {f"probe/continuations/{x}" for x in ("trajectories", "tokens", "seconds")}
    assert all(describe(name) for name in service.metrics)


@POOLS
def test_steps_taken_count_against_the_limit(pool):
    """Five steps, the expert needs three: after two wasted in place it still wins, after three it cannot."""
    settings = make_play()
    groups = record(["go left"] * 5, settings)
    segments, _, _ = verify(scripted_expert(), groups, settings, (0, 2), (2, 3), pool=pool)
    assert [(s.before, s.after, s.gain) for s in segments] == [(1.0, 1.0, 0.0), (1.0, 0.0, -1.0)]


@POOLS
def test_a_gain_of_a_policy_that_errs(pool):
    """Right with p = 0.4: two right commands on the last two steps 0.16, one on the last 0.4, gain 0.24."""
    settings = make_play()
    groups = record(["go right", "go left", *SHORTEST], settings)
    (segment,), _, _ = verify(scripted_expert(0.8), groups, settings, (3, 4), samples=300, pool=pool)
    assert segment.before == pytest.approx(0.16, abs=0.08)
    assert segment.after == pytest.approx(0.4, abs=0.1)
    assert segment.gain == segment.after - segment.before


def test_the_result_depends_neither_on_the_way_nor_on_the_seats():
    settings = make_play()
    groups = record(["go right", "go left", *SHORTEST], settings)

    def gains(pool, seats):
        changed = replace(settings, max_parallel=seats)
        return verify(scripted_expert(0.7), groups, changed, (0, 2), (1, 4), samples=6, pool=pool)[0]

    assert gains(None, 5) == gains(ShuffledPool, 5) == gains(None, 1)


@pytest.mark.parametrize(
    ("form", "template", "window"),
    [("append", "alfworld_bare", 4000), ("append", "alfworld_bare", 130), ("stepwise", "alfworld", 4000)],
    ids=["append", "append with restarts", "stepwise"],
)
def test_continuations_see_the_history_that_the_trajectory_saw(form, template, window):
    settings = make_play(form, template, window=window, make_env=lambda: ToyEnv(max_steps=6))
    groups = record(["go right", "go left", "go left", *SHORTEST], settings)
    row, rows, fresh = [], [], []
    for step in groups[0][0].steps:
        row = [*([] if step.fresh else row), *step.prompt_ids]
        rows.append(row)
        row = [*row, *step.response_ids]
        fresh.append(step.fresh)
    assert any(fresh[1:]) == (form == "stepwise" or window < 1000)
    for t in range(5):
        _, _, policy = verify(scripted_expert(), groups, settings, (t, t + 1), samples=1)
        first = policy.requests[:2]
        assert [list(request.ids) for request in first] == [rows[t], rows[t + 1]]
        assert all(request.fresh for request in first)


def test_a_trajectory_that_cannot_be_repeated_is_named():
    settings = make_play()
    groups = record(SHORTEST, settings)
    step = groups[0][0].steps[1]
    step.observation = replace(step.observation, text="You in a dream")
    with pytest.raises(EnvError, match="(?s)'near-0', before step 1.*expected 'You in a dream', got 'You in"):
        verify(scripted_expert(), groups, settings, (0, 1))
    groups = record(["go right", "go left", *SHORTEST], settings)
    shorter = replace(settings, environments=lambda: ToyEnv(max_steps=3))
    with pytest.raises(EnvError, match="'near-0': expected to go on after step 2, got the end"):
        verify(scripted_expert(), groups, shorter, (2, 3))


def test_nothing_continues_from_the_end():
    settings = make_play()
    groups = record(SHORTEST, settings)
    with pytest.raises(ValueError, match="trajectory 0 has 3 steps, so nothing continues from t = 3"):
        verify(scripted_expert(), groups, settings, (1, 3))


def test_no_candidates_play_nothing():
    settings = make_play()
    segments, service, policy = verify(scripted_expert(), record(SHORTEST, settings), settings)
    assert (segments, service.metrics, policy.requests) == ([], {}, [])


def test_prover_credits_what_continuations_verify():
    """One success of three: its first step, where the failures part from it, cannot be done without luck."""
    settings = replace(make_play(), group_size=3)
    parts = [record(actions, settings)[0][0] for actions in (["go right"] * 5, SHORTEST, ["go left"] * 5)]
    group = [replace(tr, index=k) for k, tr in enumerate(parts)]
    table = step_table([group])
    service = Continuations(Recorder(cannot_take), [group], settings, seed=0)
    stages = {"returns": {}, "grpo": {"norm": "mean"}}
    plain = Pipeline.from_config(stages).run(table)
    verified = Pipeline.from_config(stages | {"prover": {"max_steps": 1, "samples": 2}}).run(
        table, {"continuations": service}
    )
    gained = verified.advantage - plain.advantage
    winner = table.trajectory == 1
    assert gained[winner].tolist() == pytest.approx([10.0, 0.0, 0.0])
    assert not gained[~winner].any()


@POOLS
def test_alfworld_is_repeated_and_continued(pool):
    games = generate_games("train", 2, seed=0, difficulty=0.0)

    def some_command(text, rng):
        return respond(["look", "inventory", "go to shelf 1", "open drawer 1"][int(rng.integers(4))])

    settings = make_play(make_env=lambda: AlfworldEnv(max_steps=6), tasks=games)
    groups = rollout(
        ScriptedPolicy(TOKENIZER, some_command),
        Sampling(1.0),
        settings.environments,
        games,
        group_size=2,
        prompts=settings.prompts,
        max_parallel=4,
        seed=0,
    )
    policy = Recorder(some_command)
    if pool is not None:
        settings = replace(settings, environments=pool(settings.environments))
    service = Continuations(policy, groups, settings, seed=0)
    segments = service.segments(step_table(groups), [Candidate(0, 1, 3), Candidate(3, 2, 5)], 2)
    assert [(s.trajectory, s.before, s.after) for s in segments] == [(0, 0, 0), (3, 0, 0)]
    left = [2 * (6 - t) for t in (1, 3, 2, 5)]  # steps that each pair of continuations has left
    assert len(policy.requests) == sum(left)
