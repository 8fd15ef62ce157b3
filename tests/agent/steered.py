"""Rollouts under a steering hand, for tests."""

import pytest

from agent.policy import Sampling
from agent.rollout.options import RolloutOptions
from agent.rollout.rollout import Rollout
from tests.agent.test_agent_rollout import build
from tests.toy import ToyEnv, scripted_expert, toy_tasks

BOTH = pytest.mark.parametrize("mode", ["deterministic", "free"])


def steered(policy, hand, mode="deterministic", *, tasks=2, group_size=2, prompts=None, **options):
    running = Rollout(
        policy,
        Sampling(),
        options.pop("environments", ToyEnv),
        toy_tasks(tasks),
        group_size=group_size,
        prompts=prompts or build(),
        max_parallel=3,
        seed=0,
        steering=hand,
        options=RolloutOptions(mode),
    )
    return running.play()


def random_actions(text, rng):
    return scripted_expert(1.0)(text, rng)
