"""Models that think, in a rollout: what is parsed, trained on, stopped."""

from dataclasses import replace

import pytest

from agent.policy import Sampling
from agent.prompts.builder import PromptBuilder, load_template
from agent.prompts.turns import TurnFormat
from agent.rollout.live import make_step
from agent.rollout.rollout import rollout
from agent.steering.base import ActOn, AskAgain, TriedResponse
from agent.steering.copo import CopoSteering
from agent.steering.t2po import T2POSteering
from agent.types import Generation
from credit.stages.copo import CoPO
from credit.stages.t2po import T2PO
from envs.base import Observation
from rl.rows.assemble import token_rows
from rl.rows.privileged import HINDSIGHT, HINDSIGHT_END, hindsight_rows
from tests import chat_templates as published
from tests.agent.thinking import EMPTY, OPEN, THINK
from tests.toy import (
    ScriptedPolicy,
    ToyEnv,
    expert_action,
    toy_tasks,
    toy_tokenizer,
)

SEEN = Observation("room", "room", ("go left",))


def prompts(template, wanted="auto", form="append", tags=THINK):
    turns = TurnFormat(toy_tokenizer(template, tags), wanted)
    texts = "alfworld_bare" if form == "append" else "alfworld"
    return PromptBuilder(turns, form, load_template(texts), 2, 3000, 60)


@pytest.mark.parametrize(
    ("template", "wanted", "response", "thought", "well_formed"),
    [
        (published.QWEN35, "auto", "left\n</think>\n\n<action>go left</action>", "left", True),
        (published.QWEN35, "auto", "</think><action>go left</action>", "", True),  # an empty thought is one
        (published.QWEN35, "auto", "left <action>go left</action>", "", False),  # it never ends
        (published.QWEN35, "auto", "a</think>b</think><action>go left</action>", "a", False),
        (published.QWEN35, "auto", "<think>a</think><action>go left</action>", "a", False),  # opened twice
        (published.QWEN35, "ours", "<think>a</think><action>go left</action>", "a", True),
        (published.QWEN35, "ours", "a</think><action>go left</action>", "", False),
        (published.QWEN3, "auto", "<think>\na\n</think>\n\n<action>go left</action>", "a", True),
        (published.QWEN3, "auto", "<think>\n\n</think>\n\n<action>go left</action>", "", True),
        (published.QWEN3, "auto", "a</think><action>go left</action>", "", False),
        (published.QWEN3, "ours", "<think>a</think><action>go left</action>", "a", True),
        (published.QWEN3, "ours", "<action>go left</action>", "", False),
        (published.QWEN25, "auto", "a</think><action>go left</action>", "", False),
    ],
)
def test_a_response_goes_on_from_what_the_prompt_opened(template, wanted, response, thought, well_formed):
    built = prompts(template, wanted)
    ids = [*built.turns.encode(response), built.turns.stop_id]
    step = make_step(0, SEEN, [1], True, Generation(ids, [-0.5] * len(ids), "stop"), built, 0)
    assert (step.thought, step.action, step.well_formed) == (thought, "go left", well_formed)
    assert step.response == response  # what was sampled and nothing else
    assert step.valid == well_formed


@pytest.mark.parametrize("form", ["append", "stepwise"])
@pytest.mark.parametrize("wanted", ["ours", "template"])
def test_a_rollout_plays_and_trains_on_the_sampled_tokens_alone(form, wanted):
    built = prompts(published.QWEN35, wanted, form)
    turns = built.turns

    def expert(text, rng):
        assert text.endswith(OPEN if wanted == "template" else EMPTY)
        answer = f"now\n</think>\n\n<action>{expert_action(text)}</action>"
        return answer if wanted == "template" else OPEN + answer

    groups = rollout(
        ScriptedPolicy(toy_tokenizer(published.QWEN35, THINK), expert),
        Sampling(),
        ToyEnv,
        toy_tasks(2),
        group_size=2,
        prompts=built,
        max_parallel=4,
        seed=0,
    )
    trajectories = [tr for group in groups for tr in group]
    assert all(
        tr.success and all(step.valid and step.thought == "now" for step in tr.steps) for tr in trajectories
    )
    steps = [step for tr in trajectories for step in tr.steps]
    for token_row in token_rows(groups, mask_truncated=False):
        for start, end, number in token_row.spans:
            assert token_row.ids[start:end].tolist() == steps[number].response_ids
            before = turns.decode(token_row.ids[:start].tolist())
            assert before.endswith(OPEN if wanted == "template" else EMPTY)  # seen, not trained on


def test_copo_does_not_open_what_the_prompt_has_opened():
    rules = CoPO(original="match")
    for template, openings in (
        (published.QWEN35, ["</think>", "first", "because"]),
        (published.QWEN3, ["<think></think>", "<think>first", "<think>because"]),
    ):
        turns = TurnFormat(toy_tokenizer(template, THINK))
        decide = CopoSteering(replace(rules, original="own")).pilot(turns).decide
        tries = [TriedResponse((), Generation(turns.encode("x"), [-0.5], "stop"))]
        for opening in openings:
            again = decide(None, tries)
            assert isinstance(again, AskAgain) and turns.decode(again.opening) == opening
            tries.append(TriedResponse(again.opening, tries[0].generation))
        assert isinstance(decide(None, tries), ActOn)
        # The played answer is of the level it begins with, whoever opened the thought.
        played = Generation(turns.encode(openings[1] + " left</think>"), [-0.5], "stop")
        asked = CopoSteering(rules).pilot(turns).decide(None, [TriedResponse((), played)])
        assert turns.decode(asked.opening) == openings[0]


def test_a_thought_that_the_prompt_opened_is_stopped_by_t2po():
    built = prompts(published.QWEN35)
    turns = built.turns
    pilot = T2POSteering(T2PO(window=2, epsilon=1.0, min_prefix=3, max_try=0, top=1)).pilot(turns)
    ids = turns.encode("go go go go go go")
    settled = Generation(ids, [-0.5] * len(ids), "length", [[1.0, -0.5 - 0.001 * i] for i in range(len(ids))])
    again = pilot.decide(None, [TriedResponse((), settled)])
    assert isinstance(again, AskAgain)
    cut = len(again.opening) - 1
    assert list(again.opening) == [*ids[:cut], *turns.encode("</think>")] and 0 < cut < len(ids)
    rest = turns.encode("<action>go left</action>") + [turns.stop_id]
    answer = Generation(rest, [-0.5] * len(rest), "stop", [[1.0, -0.5]] * len(rest))
    act = pilot.decide(None, [TriedResponse((), settled), TriedResponse(again.opening, answer)])
    assert isinstance(act, ActOn) and act.forced == (cut, cut + 1)
    step = make_step(0, SEEN, [1], True, act.generation, built, 0)
    assert step.well_formed and step.action == "go left" and step.thought.startswith("go")


@pytest.mark.parametrize("template", [published.QWEN25, published.QWEN3, published.QWEN35])
def test_a_privileged_context_stands_before_the_message_with_its_line_breaks(template):
    tokenizer = toy_tokenizer(template, THINK)
    built = prompts(template, form="stepwise")
    opened = built.turns.opened

    def answer(text, rng):
        return ("" if opened else OPEN) + f"now\n</think>\n\n<action>{expert_action(text)}</action>"

    groups = rollout(
        ScriptedPolicy(tokenizer, answer),
        Sampling(),
        ToyEnv,
        toy_tasks(1),
        group_size=1,
        prompts=built,
        max_parallel=1,
        seed=0,
    )
    rows = token_rows(groups, mask_truncated=False)
    told = hindsight_rows(rows, groups, built, window=4000).rows
    last = groups[0][0].steps[-1].next_observation.text
    context = HINDSIGHT.format(ends="ends in success", observation=last) + HINDSIGHT_END
    for plain, seen in zip(rows, told, strict=True):
        text = tokenizer.decode(plain.ids.tolist())
        head = text.index("<|im_start|>user\n") + len("<|im_start|>user\n")
        assert tokenizer.decode(seen.ids.tolist()) == text[:head] + context + text[head:]
        for (start, end, _), (moved, until, _) in zip(plain.spans, seen.spans, strict=True):
            assert seen.ids[moved:until].tolist() == plain.ids[start:end].tolist()
