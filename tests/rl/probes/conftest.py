"""A small model that has walked through generated games, in both prompt forms."""

from dataclasses import dataclass

import pytest

from agent.policy import Sampling
from agent.prompts.builder import PromptBuilder, load_template
from agent.prompts.turns import TurnFormat
from agent.rollout.rollout import rollout
from rl.learner.forward import ResponseModel
from rl.probes.probes import ProbeOptions, token_columns
from tests.toy import (
    CHATML_TEMPLATE,
    COMPACT_TEMPLATE,
    ScriptedPolicy,
    ToyEnv,
    scripted_expert,
    tiny_model,
    toy_tasks,
    toy_tokenizer,
)

FORMS = [("append", "alfworld_bare", COMPACT_TEMPLATE), ("stepwise", "alfworld", CHATML_TEMPLATE)]


@dataclass(frozen=True)
class World:
    """A tokenizer, prompts in one form, a random peaked model and groups with successes and failures."""

    prompts: PromptBuilder
    tokenizer: object
    model: object
    groups: list

    @property
    def module(self):
        return ResponseModel(self.model)

    def columns(self, *names, temperature=1.0, seed=0, groups=None, version=0, **options):
        options = ProbeOptions(token_budget=4096, **options)
        return token_columns(
            names,
            self.groups if groups is None else groups,
            module=self.module,
            version=version,
            prompts=self.prompts,
            temperature=temperature,
            options=options,
            seed=seed,
        )


def make_world(form, template, chat, *, error=0.6, window=3000):
    tokenizer = toy_tokenizer(chat)
    prompts = PromptBuilder(TurnFormat(tokenizer), form, load_template(template), 2, window, 40)
    groups = rollout(
        ScriptedPolicy(tokenizer, scripted_expert(error), window=window),
        Sampling(1.0),
        ToyEnv,
        toy_tasks(3, seed=2),
        group_size=4,
        prompts=prompts,
        max_parallel=8,
        seed=5,
    )
    return World(prompts, tokenizer, tiny_model(len(tokenizer), std=0.3), groups)


@pytest.fixture(scope="module", params=FORMS, ids=["append", "stepwise"])
def world(request):
    made = make_world(*request.param)
    wins = [sum(tr.success for tr in group) for group in made.groups]
    assert 1 in wins or 2 in wins, "the tests need a group with successes and failures"
    return made
