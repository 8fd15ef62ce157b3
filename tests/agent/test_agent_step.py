"""What a step records of a response."""

import pytest

from agent.prompts.builder import PromptBuilder, load_template
from agent.prompts.parse import parser
from agent.prompts.turns import TurnFormat
from agent.rollout.live import make_step
from agent.types import Generation
from envs.base import Observation
from tests.toy import toy_tokenizer

SHOP = Observation("a room", "room", ("go<where to>", "take key"))


@pytest.mark.parametrize(
    ("response", "admissible", "valid"),
    [
        ("<think>now</think><action>take key</action>", True, True),
        ("<think>now</think><action>go left</action>", True, True),  # fills the blank
        ("<think>now</think><action>open door</action>", False, False),
        ("<action>take key</action>", True, False),
    ],
)
def test_an_action_that_fills_a_blank_is_admissible(response, admissible, valid):
    step = made(response)
    assert (step.admissible, step.valid) == (admissible, valid)


@pytest.mark.parametrize(
    ("response", "action", "admissible", "valid"),
    [
        ("now <think>now</think> <action>take key</action>", "take key", True, True),
        ("<think>now</think><action>open door</action>", "open door", False, True),
        ("<action>take key</action>", "take key", True, False),
        ("take key", "take key", True, False),  # the response's end is played
    ],
)
def test_by_the_papers_rule_validity_does_not_ask_for_an_admissible_action(
    response, action, admissible, valid
):
    step = made(response, parser=parser("papers", 30))
    assert (step.action, step.admissible, step.valid) == (action, admissible, valid)


def made(response, **options):
    turns = TurnFormat(toy_tokenizer())
    template = load_template("alfworld_bare")
    prompts = PromptBuilder(
        turns, "append", template, history=0, window=128, max_response_tokens=32, **options
    )
    ids = toy_tokenizer().encode(response, add_special_tokens=False) + [turns.stop_id]
    generation = Generation(ids, [0.0] * len(ids), "stop")
    return make_step(0, SHOP, [1], True, generation, prompts, version=0)
