"""Models that think by themselves: whose tags, what the prompt opens, and what follows from it."""

import json
import re

import pytest

from agent.prompts.turns import TemplateError, TurnFormat
from tests import chat_templates as published
from tests.agent.thinking import EMPTY, OPEN, THINK
from tests.toy import (
    CHATML_TEMPLATE,
    COMPACT_TEMPLATE,
    toy_tokenizer,
)

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
