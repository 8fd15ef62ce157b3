"""A whole fixed list of tasks: the same result for every batch size and order."""

import pytest
import torch

from agent.policies.torch_policy import TorchPolicy
from agent.policy import Sampling
from agent.prompts.turns import TurnFormat
from eval.evaluate import evaluate
from eval.result import EvalError
from tests.eval.synthetic import prompts
from tests.toy import ScriptedPolicy, ToyEnv, scripted_expert, tiny_model, toy_tasks, toy_tokenizer


def run(policy, tasks, max_parallel, **options):
    return evaluate(
        policy,
        lambda: ToyEnv(max_steps=6),
        tasks,
        prompts(),
        sampling=Sampling(0.4),
        seed=options.pop("seed", 3),
        max_parallel=max_parallel,
        **options,
    )


def scripted():
    return ScriptedPolicy(toy_tokenizer(), scripted_expert(0.5))


@pytest.fixture(scope="module")
def tasks():
    return toy_tasks(140, split="valid_seen")


@pytest.fixture(scope="module")
def reference(tasks):
    return run(scripted(), tasks, 140)


@pytest.mark.parametrize("max_parallel", [1, 7, 128])
def test_same_result_for_every_batch_size(tasks, reference, max_parallel):
    assert 0.2 < reference.success < 0.9
    assert run(scripted(), tasks, max_parallel) == reference


def test_same_result_for_every_order(tasks, reference):
    assert run(scripted(), tasks[::-1], 128) == reference


def test_a_task_is_played_the_same_whatever_is_played_beside_it(tasks, reference):
    some = run(scripted(), tasks[40:60], 7)
    assert set(some.tasks) <= set(reference.tasks)


def test_the_seed_counts(tasks, reference):
    assert run(scripted(), tasks, 140, seed=4).tasks != reference.tasks


def test_all_tasks_are_played_once(tasks, reference):
    assert [task.task_id for task in reference.tasks] == sorted(task.id for task in tasks)
    assert reference.n == 140
    assert sum(tally.n for tally in reference.per_family.values()) == 140


def test_the_expert_solves_all_validly(tasks):
    evaluation = run(ScriptedPolicy(toy_tokenizer(), scripted_expert()), tasks[:20], 8)
    assert evaluation.success == 1.0
    assert evaluation.overall.valid == 1.0
    assert evaluation.overall.truncated == 0.0


def test_validity_and_cut_off_are_counted(tasks):
    """Wrong commands with the right tags are well-formed, not admissible, not valid."""
    policy = ScriptedPolicy(toy_tokenizer(), lambda text, rng: "<think>now</think><action>fly</action>")
    overall = run(policy, tasks[:5], 5).overall
    assert (overall.well_formed, overall.admissible, overall.valid) == (1.0, 0.0, 0.0)
    assert (overall.truncated, overall.mean_steps, overall.score) == (1.0, 6.0, 0.0)


def test_same_result_for_every_batch_size_with_a_model(tasks):
    tokenizer = toy_tokenizer()
    with torch.random.fork_rng():
        model = tiny_model(len(tokenizer), std=0.3)
    results = [
        run(
            TorchPolicy(model, stop_ids=TurnFormat(tokenizer).stop_ids, window=1024, max_parallel=n),
            tasks[:9],
            n,
        )
        for n in (1, 4, 9)
    ]
    assert results[0] == results[1] == results[2]


# --- several attempts at each task -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def thrice(tasks):
    return run(scripted(), tasks[:30], 128, samples=3)


def test_the_first_attempts_are_an_evaluation_with_one(reference, thrice):
    first = [record for record in thrice.tasks if record.attempt == 0]
    assert first == [record for record in reference.tasks if record.task_id in thrice.by_task]


def test_attempts_differ_and_are_independent_of_how_many_there_are(tasks, thrice):
    outcomes = [tuple((r.success, r.steps) for r in attempts) for attempts in thrice.by_task.values()]
    assert sum(len(set(outcome)) > 1 for outcome in outcomes) > 15
    twice = run(scripted(), tasks[:30], 128, samples=2)
    assert set(twice.tasks) == {record for record in thrice.tasks if record.attempt < 2}


@pytest.mark.parametrize("max_parallel", [1, 7])
def test_attempts_are_the_same_for_every_batch_size_and_order(tasks, thrice, max_parallel):
    assert run(scripted(), tasks[:30][::-1], max_parallel, samples=3) == thrice


def test_an_attempt_has_an_environment_of_its_own(tasks):
    """A world that draws: what it draws repeats for one attempt, and is another for the next."""
    seeds = []

    class Drawing(ToyEnv):
        def reset(self, task, seed=0):
            seeds.append(seed)
            return super().reset(task, seed)

    for _ in range(2):
        evaluate(
            scripted(),
            lambda: Drawing(max_steps=6),
            tasks[:2],
            prompts(),
            sampling=Sampling(0.4),
            seed=3,
            max_parallel=1,
            samples=2,
        )
    assert len(set(seeds[:4])) == 4
    assert seeds[:4] == seeds[4:]


def test_all_attempts_are_counted_while_they_are_made(tasks):
    seen = []
    run(scripted(), tasks[:5], 4, samples=2, on_progress=lambda done, tokens: seen.append(done))
    assert seen[-1] == 10


def test_progress_is_reported(tasks):
    seen = []
    evaluation = run(scripted(), tasks[:10], 4, on_progress=lambda done, tokens: seen.append((done, tokens)))
    assert seen[-1] == (10, evaluation.tokens)


def test_an_empty_split_is_an_error():
    with pytest.raises(EvalError, match="split has no tasks"):
        run(scripted(), [], 8)


def test_a_task_listed_twice_is_an_error_before_anything_is_played(tasks):
    policy = scripted()
    with pytest.raises(EvalError, match="listed twice"):
        run(policy, [*tasks[:3], tasks[0]], 8)
    assert policy.calls == []
