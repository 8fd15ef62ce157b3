"""Evaluation never leaves a task out: it is complete, or an error that names what is missing."""

import pytest

from agent.policy import Sampling
from agent.rollout.options import RolloutOptions
from eval.evaluate import evaluate
from eval.result import EvalError
from tests.agent.streaming import BrokenPool, StreamingPolicy
from tests.eval.synthetic import prompts
from tests.toy import ToyEnv, scripted_expert, toy_tasks, toy_tokenizer

TASKS = toy_tasks(6, split="valid_seen")


def run(pool, mode="deterministic", samples=1):
    return evaluate(
        StreamingPolicy(toy_tokenizer(), scripted_expert(0.5)),
        pool,
        TASKS,
        prompts(),
        sampling=Sampling(0.4),
        seed=3,
        max_parallel=3,
        samples=samples,
        options=RolloutOptions(mode),
    )


@pytest.mark.parametrize("mode", ["deterministic", "free"])
def test_tasks_that_cannot_be_played_are_named_all_of_them(mode):
    with pytest.raises(EvalError) as caught:
        run(BrokenPool(ToyEnv, lambda number, t: number in (1, 4) and t == 1), mode)
    told = str(caught.value)
    assert told.startswith("2 of 6 tasks could not be played, so there is no result")
    assert f"{TASKS[1].id}: lost: worker of 1 died" in told
    assert f"{TASKS[4].id}: lost: worker of 4 died" in told


def test_a_task_with_a_single_lost_attempt_is_named():
    """Task 2's second attempt is the sixth trajectory to start."""
    with pytest.raises(EvalError, match=r"(?s)^1 of 6 tasks could not be played.*valid_seen-2: lost"):
        run(BrokenPool(ToyEnv, lambda number, t: number == 5 and t == 1), samples=2)


def test_both_modes_give_the_same_result_where_arithmetic_is_exact():
    assert run(ToyEnv, "free").tasks == run(ToyEnv).tasks
