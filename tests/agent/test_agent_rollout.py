"""Groups of trajectories, whatever generates the tokens and however many are in flight."""

import pytest

from agent.policies.torch_policy import TorchPolicy
from agent.policy import Sampling
from agent.prompts.builder import PromptBuilder, load_template
from agent.prompts.turns import TurnFormat
from agent.rollout.rollout import rollout
from configs.seeds import derive
from envs.base import EnvError
from tests.agent.rows import token_rows, worst_disagreement
from tests.toy import (
    CHATML_TEMPLATE,
    COMPACT_TEMPLATE,
    ScriptedPolicy,
    ToyEnv,
    respond,
    scripted_expert,
    tiny_model,
    toy_tasks,
    toy_tokenizer,
)

TOKENIZER = toy_tokenizer()
TURNS = TurnFormat(TOKENIZER)


def build(form="append", template="alfworld_bare", window=1500, response=30, turns=TURNS):
    return PromptBuilder(turns, form, load_template(template), 2, window, response)


def play(policy, prompts, *, tasks=5, group_size=4, max_parallel=8, seed=0, temperature=1.0, **options):
    sampling = Sampling(temperature)
    return rollout(
        policy,
        sampling,
        options.pop("make_env", ToyEnv),
        toy_tasks(tasks),
        group_size=group_size,
        prompts=prompts,
        max_parallel=max_parallel,
        seed=seed,
        **options,
    )


def scripted(error=0.3):
    return ScriptedPolicy(TOKENIZER, scripted_expert(error))


def test_groups_record_tasks_members_and_steps():
    policy = scripted()
    groups = play(policy, build(), numbers=range(10, 15))
    tasks = toy_tasks(5)
    assert [len(group) for group in groups] == [4] * 5
    for g, group in enumerate(groups):
        for k, trajectory in enumerate(group):
            assert (trajectory.group, trajectory.index) == (10 + g, k)
            assert (trajectory.task_id, trajectory.family) == (tasks[g].id, tasks[g].family)
            assert trajectory.seed == derive(0, "trajectory", 10 + g, k)
            assert trajectory.instruction == "open the door"
            assert [step.t for step in trajectory.steps] == list(range(len(trajectory.steps)))
            assert group[0].steps[0].observation == trajectory.steps[0].observation
            for before, after in zip(trajectory.steps, trajectory.steps[1:], strict=False):
                assert before.next_observation == after.observation
            assert trajectory.success == (trajectory.steps[-1].reward == 1.0) == (trajectory.score == 1.0)
            assert trajectory.truncated == (not trajectory.success)
    assert any(t.success for group in groups for t in group)
    assert policy.live == set()


def test_a_perfect_policy_wins_everything_in_the_fewest_steps():
    groups = play(scripted(error=0.0), build())
    assert all(t.success and all(step.valid for step in t.steps) for group in groups for t in group)


def test_valid_means_well_formed_and_admissible():
    answers = {
        "fly": ("<think>x</think><action>fly to the moon</action>", True, False),
        "order": ("<action>go right</action> </think> <think>", False, True),
        "good": (respond("go right"), True, True),
    }
    for text, well_formed, admissible in answers.values():
        policy = ScriptedPolicy(TOKENIZER, lambda _, rng, text=text: text)
        groups = play(policy, build(), tasks=20, group_size=1)
        step = next(g[0].steps[0] for g in groups if "go right" in g[0].steps[0].observation.admissible)
        assert (step.well_formed, step.admissible) == (well_formed, admissible)
        assert step.valid == (well_formed and admissible)
        assert step.response == text


def test_a_response_without_an_action_costs_a_step():
    policy = ScriptedPolicy(TOKENIZER, lambda _, rng: "now")
    groups = play(policy, build(), tasks=1, group_size=1)
    assert [step.action for step in groups[0][0].steps] == [""] * 8
    assert all(step.next_observation.text == "Nothing happens." for step in groups[0][0].steps)


def test_seats_are_never_idle_and_the_finished_never_generate():
    policy = scripted()
    groups = play(policy, build(), tasks=10, group_size=4, max_parallel=16)
    steps = sum(len(t.steps) for group in groups for t in group)
    assert sum(policy.calls) == steps
    assert max(policy.calls) == 16
    full = [calls == 16 for calls in policy.calls]
    assert full == sorted(full, reverse=True)  # full until nobody waits


@pytest.mark.parametrize("max_parallel", [1, 7, 128])
@pytest.mark.parametrize("form", ["append", "stepwise"])
def test_max_parallel_changes_nothing_scripted(max_parallel, form):
    prompts = build(form, "alfworld", window=2000)
    assert play(scripted(), prompts, max_parallel=max_parallel) == play(scripted(), prompts, max_parallel=8)


MODEL = tiny_model(len(TOKENIZER), std=0.1)


def torch_policy(max_parallel=128, window=1500):
    return TorchPolicy(MODEL, TURNS.stop_ids, window=window, max_parallel=max_parallel)


def sampled(groups):
    return [(s.response_ids, s.prompt_ids, s.action) for group in groups for t in group for s in t.steps]


def test_max_parallel_changes_nothing_with_a_model():
    results = []
    for max_parallel in (1, 7, 128):
        groups = play(torch_policy(max_parallel), build(response=8), tasks=3, max_parallel=max_parallel)
        results.append(sampled(groups))
    assert results[0] == results[1] == results[2]


def test_one_seed_sets_everything():
    first, again = (sampled(play(torch_policy(), build(response=8), tasks=2)) for _ in range(2))
    other = sampled(play(torch_policy(), build(response=8), tasks=2, seed=1))
    assert first == again != other


@pytest.mark.parametrize("template", [COMPACT_TEMPLATE, CHATML_TEMPLATE])
@pytest.mark.parametrize("temperature", [1.0, 0.6])
@pytest.mark.parametrize(
    ("form", "texts", "window"), [("append", "alfworld_bare", 150), ("stepwise", "alfworld", 1500)]
)
def test_sampled_log_probabilities_are_the_learners(form, texts, window, temperature, template):
    tokenizer = toy_tokenizer(template)
    turns = TurnFormat(tokenizer)
    policy = TorchPolicy(MODEL, turns.stop_ids, window=window, max_parallel=6)
    prompts = build(form, texts, window, 12, turns)
    groups = play(policy, prompts, tasks=2, max_parallel=6, temperature=temperature)
    assert worst_disagreement(MODEL, groups, temperature) < 1e-5
    rows = token_rows(groups)
    assert all(len(ids) <= window for ids, _ in rows)
    if form == "append":  # some rows restarted, and rows hold several responses
        assert len(rows) > 8 and max(len(spans) for _, spans in rows) > 1


def test_ids_recorded_are_ids_sampled_even_where_text_would_tokenise_otherwise():
    groups = play(torch_policy(), build(response=12), tasks=2)
    steps = [step for group in groups for t in group for step in t.steps]
    again = [TOKENIZER.encode(TOKENIZER.decode(s.response_ids), add_special_tokens=False) for s in steps]
    assert any(ids != s.response_ids for ids, s in zip(again, steps, strict=True))
    assert all(len(s.response_ids) == len(s.logp_sampled) for s in steps)


def test_a_response_cut_by_length_is_marked_and_closed_by_the_next_prompt():
    groups = play(scripted(), build(response=5), tasks=1, group_size=1)
    steps = groups[0][0].steps
    assert len(steps) == 8
    for step in steps:
        assert step.finish == "length" and len(step.response_ids) == 5
        assert TURNS.stop_id not in step.response_ids
        assert not step.well_formed
    assert all(step.prompt_ids[0] == TURNS.stop_id for step in steps[1:])


def test_named_tasks_are_played_alike_whatever_else_is_played():
    names = [task.id for task in toy_tasks(5)]
    everything = play(scripted(), build(), group_size=2, names=names)
    for g in range(5):
        alone = rollout(
            scripted(),
            Sampling(),
            ToyEnv,
            [toy_tasks(5)[g]],
            group_size=2,
            prompts=build(),
            max_parallel=8,
            seed=0,
            numbers=[g],
            names=[names[g]],
        )
        assert alone == [everything[g]]


def test_progress_is_told():
    told = []
    groups = play(scripted(), build(), on_progress=lambda done, tokens: told.append((done, tokens)))
    assert told == sorted(told)
    assert told[-1] == (20, sum(t.tokens_sampled for group in groups for t in group))


def test_an_environment_that_fails_closes_everything():
    closed = []

    class Failing(ToyEnv):
        def step(self, action):
            if closed == [] and self._state[2] == 2:
                raise EnvError("broken")
            return super().step(action)

        def close(self):
            closed.append(self)

    policy = scripted(error=1.0)
    with pytest.raises(EnvError, match="broken"):
        play(policy, build(), make_env=Failing, max_parallel=6)
    assert len(closed) == len(set(map(id, closed))) == 6
    assert policy.live == set()


def test_wrong_arguments():
    with pytest.raises(ValueError, match="at least 1"):
        play(scripted(), build(), max_parallel=0)
    with pytest.raises(ValueError, match="below prompt.window"):
        play(torch_policy(window=100), build())


def test_no_tasks_no_groups():
    assert play(scripted(), build(), tasks=0) == []
