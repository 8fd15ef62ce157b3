"""Models that think by themselves: whose tags, what the prompt opens, and what follows from it."""

import json
import re
from dataclasses import replace

import pytest

from agent.policy import Sampling
from agent.prompts.builder import PromptBuilder, load_template
from agent.prompts.turns import TemplateError, TurnFormat
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
from tests.toy import (
    CHATML_TEMPLATE,
    COMPACT_TEMPLATE,
    ScriptedPolicy,
    ToyEnv,
    expert_action,
    toy_tasks,
    toy_tokenizer,
)

THINK = ["<think>", "</think>"]
EMPTY = "<think>\n\n</think>\n\n"
OPEN = "<think>\n"
R1 = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content.split('</think>')[-1] }}"
    "{% if m.role == 'assistant' %}<|im_end|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|><think>\n{% endif %}"
)

# template, prompt.thinking → whose, end of the prompt, what enable_thinking must be to render the same
CHOICES = [
    (published.QWEN25, "auto", "", "", None),
    (published.QWEN25, "ours", "", "", None),
    (COMPACT_TEMPLATE, "auto", "", "", None),
    (published.QWEN3, "auto", "template", "", None),
    (published.QWEN3, "template", "template", "", True),
    (published.QWEN3, "ours", "ours", EMPTY, False),
    (published.QWEN3_THINKING, "auto", "template", OPEN, None),
    (published.QWEN3_THINKING, "template", "template", OPEN, None),
    (published.QWEN35, "auto", "template", OPEN, None),
    (published.QWEN35, "template", "template", OPEN, True),
    (published.QWEN35, "ours", "ours", EMPTY, False),
    (published.QWEN35_SMALL, "auto", "ours", EMPTY, None),
    (published.QWEN35_SMALL, "template", "template", OPEN, True),
    (published.GLM45, "auto", "template", "", None),
    (published.GLM45, "ours", "ours", "<think></think>", False),
    (R1, "auto", "template", OPEN, None),
]


def rendered(tokenizer, messages, thinking=None):
    """The template's own word, through transformers."""
    given = {} if thinking is None else {"enable_thinking": thinking}
    return tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, **given)


def said(system, *turns):
    """Messages of a conversation that begins with the user."""
    roles = ("user", "assistant")
    messages = [{"role": roles[i % 2], "content": text} for i, text in enumerate(turns)]
    return [*([{"role": "system", "content": system}] if system else []), *messages]


def row(turns, system, questions, responses):
    """The ids of an append-only row: prompts and responses in turn, then the last question."""
    encode = turns.encode
    ids = turns.first(system, questions[0])
    for question, response in zip(questions[1:], responses, strict=True):
        ids = [*ids, *encode(response), turns.stop_id, *turns.next(question)]
    return ids


@pytest.mark.parametrize("tags", [[], THINK], ids=["tags in pieces", "tags as tokens"])
@pytest.mark.parametrize("system", [None, "be brief"])
@pytest.mark.parametrize(("template", "wanted", "whose", "end", "thinking"), CHOICES)
def test_prompts_are_what_the_template_renders(template, wanted, whose, end, thinking, system, tags):
    tokenizer = toy_tokenizer(template, tags)
    turns = TurnFormat(tokenizer, wanted)
    text = rendered(tokenizer, said(system, "open the door"), thinking)
    assert text.endswith(end)
    assert turns.first(system, "open the door") == tokenizer.encode(text, add_special_tokens=False)
    assert turns.opened == (end if end == OPEN else "")
    assert turns.thinking.partition(",")[0] == whose


@pytest.mark.parametrize("system", [None, "be brief"])
@pytest.mark.parametrize(("template", "wanted", "whose", "end", "thinking"), CHOICES)
def test_a_row_is_the_template_s_conversation_with_the_thoughts_it_drops(
    template, wanted, whose, end, thinking, system
):
    tokenizer = toy_tokenizer(template, THINK)
    turns = TurnFormat(tokenizer, wanted)
    actions = ["<action>go left</action>", "<action>take key</action>"]
    thought = "now\n</think>\n\n" if turns.opened else "<think>\nnow\n</think>\n\n"
    responses = [thought + action for action in actions]
    questions = ["room 1", "room 2", "room 3"]
    messages = said(
        system, "room 1", turns.opened + responses[0], "room 2", turns.opened + responses[1], "room 3"
    )
    found = tokenizer.decode(row(turns, system, questions, responses))
    expected = rendered(tokenizer, messages, thinking)
    if template in (published.QWEN25, COMPACT_TEMPLATE):
        assert found == expected
        return
    assert "now" not in expected and found.count("now") == 2  # the departure: what was sampled stays
    blocks = re.compile(r"\s*<think>[^<]*</think>\s*")
    opening = "<|assistant|>" if "<|assistant|>" in found else "<|im_start|>assistant\n"
    *before, last = found.split(opening)
    *expected_before, expected_last = expected.split(opening)
    assert last == expected_last  # the prompt of the step now
    # … and the rest differs by thoughts alone, and the line breaks around them.
    bare = [[blocks.sub("", piece).lstrip("\n") for piece in pieces] for pieces in (before, expected_before)]
    assert bare[0] == bare[1]


def test_rows_of_answers_without_thoughts_are_the_template_s_to_the_letter():
    tokenizer = toy_tokenizer(published.QWEN3, THINK)
    turns = TurnFormat(tokenizer)
    text = rendered(tokenizer, said(None, "room 1", "go left", "room 2", "take key", "room 3"))
    assert row(turns, None, ["room 1", "room 2", "room 3"], ["go left", "take key"]) == tokenizer.encode(
        text, add_special_tokens=False
    )


@pytest.mark.parametrize("template", [published.QWEN35, published.QWEN35_SMALL])
def test_messages_are_trimmed_where_the_template_trims_them(template):
    tokenizer = toy_tokenizer(template, THINK)
    turns = TurnFormat(tokenizer)
    ids = turns.first(" be brief\n", "\n\nroom 1 \n")
    assert tokenizer.decode(ids) == rendered(tokenizer, said(" be brief\n", "\n\nroom 1 \n"))
    assert turns.next(" room 2\n") == turns.next("room 2")
    kept = TurnFormat(toy_tokenizer(CHATML_TEMPLATE))
    assert "\n\nroom 1 \n<|im_end|>" in kept.decode(kept.first(None, "\n\nroom 1 \n"))


def test_a_template_that_changes_the_white_space_otherwise_is_refused():
    tokenizer = toy_tokenizer(COMPACT_TEMPLATE.replace("m.content", "m.content.replace('\\n', ' ')"))
    with pytest.raises(TemplateError, match="without the white space around it"):
        TurnFormat(tokenizer)


def test_it_says_whose_thoughts_they_are_and_what_becomes_of_them():
    drop = "; append-only rows keep old thoughts, which the template would drop"
    for template, wanted, words in (
        (published.QWEN25, "auto", ""),
        (R1.replace("<think>\n", ""), "auto", "ours, the response opens <think>" + drop),
        (published.QWEN3, "auto", "template, the response opens <think>" + drop),
        (published.QWEN35, "auto", "template, the prompt opens <think>" + drop),
        (
            published.QWEN3,
            "ours",
            "ours, the prompt ends with an empty thought and the response opens <think>" + drop,
        ),
    ):
        assert TurnFormat(toy_tokenizer(template), wanted).thinking == words


# --- what cannot be -----------------------------------------------------------------------------------------

RAISES = (
    COMPACT_TEMPLATE + "{% if effort is defined %}{{ raise_exception('effort is low or high') }}{% endif %}"
)
ALWAYS_EMPTY = COMPACT_TEMPLATE.replace("<|assistant|>{% endif", "<|assistant|><think></think>{% endif")


@pytest.mark.parametrize(
    ("template", "thinking", "arguments", "message"),
    [
        (published.QWEN25, "template", {}, "has no thinking of its own.*prompt.thinking=ours"),
        (published.QWEN3_THINKING, "ours", {}, r"'<think>\\n'.*cannot be switched off: use .*template"),
        (ALWAYS_EMPTY, "template", {}, "always ends the prompt with an empty thought.*prompt.thinking=ours"),
        (
            published.QWEN3,
            "ours",
            {"enable_thinking": True},
            "thinking=ours sets enable_thinking itself.*True",
        ),
        (
            published.QWEN3,
            "template",
            {"enable_thinking": False},
            "thinking=template sets.*leave one of them",
        ),
        (published.QWEN3, "auto", {"enable_thinking": "no"}, "must be true or false, got 'no'"),
        (published.QWEN3, "auto", {"enable_thinkin": False}, "did you mean `enable_thinking`"),
        (published.QWEN25, "auto", {"enable_thinking": False}, "template_args.enable_thinking: .*no such"),
        (published.QWEN3, "auto", {"messages": []}, "template_args.messages: .*no such argument"),
        (
            RAISES,
            "auto",
            {"effort": "max"},
            r"cannot be rendered with .*'effort': 'max'.*effort is low or high",
        ),
    ],
)
def test_what_a_template_cannot_do_is_said(template, thinking, arguments, message):
    with pytest.raises(TemplateError, match=message):
        TurnFormat(toy_tokenizer(template, THINK), thinking, arguments)


@pytest.mark.parametrize(("on", "thinking"), [(True, "template"), (False, "ours")])
def test_the_switch_among_the_arguments_decides(on, thinking):
    tokenizer = toy_tokenizer(published.QWEN35, THINK)
    for wanted in ("auto", thinking):
        found = TurnFormat(tokenizer, wanted, {"enable_thinking": on})
        assert found.first(None, "hi") == TurnFormat(tokenizer, thinking).first(None, "hi")


def test_further_arguments_reach_the_template():
    tokenizer = toy_tokenizer("{{ effort }}" + COMPACT_TEMPLATE)
    assert tokenizer.decode(TurnFormat(tokenizer, "auto", {"effort": "high"}).first(None, "hi")).startswith(
        "high"
    )


# --- responses ----------------------------------------------------------------------------------------------

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


def test_arguments_of_a_template_are_json():
    from configs.load import load
    from configs.text import ConfigError

    config = load(
        "alfworld_cpu", ["prompt.template_args.effort=high", "prompt.template_args.budget=3"]
    ).config
    assert config.prompt.template_args == {"effort": "high", "budget": 3}
    assert json.loads(config.model_dump_json())["prompt"]["template_args"] == {"effort": "high", "budget": 3}
    with pytest.raises(ConfigError, match="prompt.template_args.when"):
        load("alfworld_cpu", ["prompt.template_args.when=2026-01-01"])
    with pytest.raises(ConfigError, match="`prompt.thinking` must be 'auto', 'ours' or 'template'"):
        load("alfworld_cpu", ["prompt.thinking=own"])
