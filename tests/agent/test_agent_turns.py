"""Chat templates reduced to the ids around a response."""

import pytest

from agent.prompts.turns import TemplateError, TurnFormat
from tests.toy import CHATML_TEMPLATE, COMPACT_TEMPLATE, toy_tokenizer

TEMPLATES = [COMPACT_TEMPLATE, CHATML_TEMPLATE]


def rendered(tokenizer, messages):
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    return tokenizer.encode(text, add_special_tokens=False)


@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize("system", [None, "be brief"])
def test_a_first_prompt_and_a_continuation_are_what_the_template_renders(template, system):
    tokenizer = toy_tokenizer(template)
    turns = TurnFormat(tokenizer)
    messages = [{"role": "user", "content": "open the door"}]
    if system:
        messages.insert(0, {"role": "system", "content": system})
    first = turns.first(system, "open the door")
    assert first == rendered(tokenizer, messages)
    answer = "<think>now</think><action>go left</action>"
    response = [*tokenizer.encode(answer, add_special_tokens=False), turns.stop_id]
    messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": "Nothing happens"}]
    assert first + response + turns.next("Nothing happens") == rendered(tokenizer, messages)


def test_a_default_system_message_of_the_template_stays():
    tokenizer = toy_tokenizer(CHATML_TEMPLATE)
    turns = TurnFormat(tokenizer)
    assert "You are a helpful toy." in tokenizer.decode(turns.first(None, "hi"))
    assert "You are a helpful toy." not in tokenizer.decode(turns.first("S", "hi"))
    assert "You are a helpful toy." not in tokenizer.decode(turns.next("hi"))


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_response_cut_by_length_is_closed_by_the_continuation(template):
    turns = TurnFormat(toy_tokenizer(template))
    assert turns.next("hi", closed=False) == [turns.stop_id, *turns.next("hi")]


def test_stop_tokens():
    tokenizer = toy_tokenizer()
    turns = TurnFormat(tokenizer)
    assert turns.stop_ids == (tokenizer.convert_tokens_to_ids("<|im_end|>"),)
    tokenizer.eos_token = "<|endoftext|>"
    turns = TurnFormat(tokenizer)
    assert turns.stop_ids == (turns.stop_id, tokenizer.eos_token_id)


def test_decode_leaves_out_the_stop_token_only():
    tokenizer = toy_tokenizer()
    turns = TurnFormat(tokenizer)
    ids = tokenizer.encode("<action>go left</action>", add_special_tokens=False)
    assert turns.decode([*ids, turns.stop_id]) == turns.decode(ids) == "<action>go left</action>"
    assert turns.decode([turns.stop_id, turns.stop_id]) == "<|im_end|>"
    assert turns.decode([]) == ""


GENERATE = "{% if add_generation_prompt %}<|assistant|>{% endif %}"


def turn(after):
    """A template of plain turns, where `after` follows a response."""
    return (
        "{% for m in messages %}{% if m.role == 'assistant' %}<|assistant|>{{ m.content }}"
        + after
        + "{% else %}<|user|>{{ m.content }}{% endif %}{% endfor %}"
        + GENERATE
    )


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (None, "no chat_template"),
        ("{% for m in messages %}<|user|>{{ m.content }}{{ m.content }}{% endfor %}" + GENERATE, "2 times"),
        ("{{ messages|length }}" + turn("<|im_end|>"), "once it is answered"),
        (turn(" then<|im_end|>"), "special token"),
        (turn("{% if messages|length > 3 %}<|endoftext|>{% endif %}<|im_end|>"), "depends on the system"),
    ],
)
def test_a_template_that_cannot_be_continued_is_refused(template, message):
    tokenizer = toy_tokenizer()
    tokenizer.chat_template = template
    with pytest.raises(TemplateError, match=message):
        TurnFormat(tokenizer)
