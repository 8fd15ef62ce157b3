"""Both prompt forms: what they say, what they repeat, and how they stay within the window."""

import pytest

from agent.prompts.builder import PromptBuilder, PromptError, PromptTemplate, load_template, quote_admissible
from agent.prompts.turns import TurnFormat
from envs.base import Observation
from tests.toy import CHATML_TEMPLATE, respond, toy_tokenizer

TOKENIZER = toy_tokenizer()
TURNS = TurnFormat(TOKENIZER)


def observation(text):
    return Observation(text, text, ("go left", "help", "take key"))


def build(form="append", template="alfworld_bare", *, history=2, window=1000, response=30, turns=TURNS):
    return PromptBuilder(turns, form, load_template(template), history, window, response)


def play(conversation, steps, closed=True):
    """Plays `steps` observations "room <t>"; returns [(text of the prompt, fresh)] and the rows' ids."""
    prompts, rows = [], []
    for t in range(steps):
        ids, fresh = conversation.prompt(observation(f"room {t}"))
        prompts.append((TOKENIZER.decode(ids), fresh))
        if fresh:
            rows.append([])
        response = TOKENIZER.encode(respond(f"go {t}"), add_special_tokens=False)
        response = [*response, TURNS.stop_id] if closed else response
        rows[-1] += ids + response
        conversation.record(response, f"go {t}")
    return prompts, rows


def test_the_bare_append_form_is_the_observations_and_nothing_else():
    prompts, rows = play(build().start("open the door"), 3)
    assert prompts == [
        ("<|user|>room 0<|assistant|>", True),
        ("<|user|>room 1<|assistant|>", False),
        ("<|user|>room 2<|assistant|>", False),
    ]
    assert len(rows) == 1


def test_the_full_append_form_lists_what_may_be_done():
    prompts, _ = play(build(template="alfworld").start("open the door"), 2)
    for text, _ in prompts:
        assert "'go left'\n'take key'" in text and "'help'" not in text
    assert "<action> </action>" in prompts[0][0]


def test_a_response_cut_by_length_is_closed_outside_of_it():
    prompts, _ = play(build().start("open the door"), 2, closed=False)
    assert prompts[1][0] == "<|im_end|><|user|>room 1<|assistant|>"


@pytest.mark.parametrize("window", [90, 120, 150, 200, 300])
def test_a_row_that_outgrows_the_window_restarts_from_whole_last_steps(window):
    prompts, rows = play(build(window=window).start("open the door"), 30)
    assert all(len(row) <= window for row in rows)
    assert len(rows) > 1
    responses = [respond(f"go {t}") + "<|im_end|>" for t in range(30)]
    for t, (text, fresh) in enumerate(prompts):
        if not fresh or t == 0:
            continue
        assert text.count("Your task is to: open the door") == 1
        assert text.endswith(f"room {t}<|assistant|>")
        kept = text.count("<|im_end|>")
        expected = "<|assistant|>".join(
            ("<|user|>Your task is to: open the door\n\n" if i == 0 else "<|user|>") + f"room {s}"
            for i, s in enumerate(range(t - kept, t + 1))
        )
        for s in range(t - kept, t):
            expected = expected.replace(f"room {s}<|assistant|>", f"room {s}<|assistant|>{responses[s]}")
        assert text == expected + "<|assistant|>"
        assert kept == 0 or len(TOKENIZER.encode(text, add_special_tokens=False)) <= window // 2


def test_a_restarted_row_repeats_the_sampled_ids():
    conversation = build(window=150).start("open the door")
    # "g","o" decode to what one token encodes: re-tokenising would change the ids.
    odd = [TOKENIZER.convert_tokens_to_ids(c) for c in "go"] * 5 + [TURNS.stop_id]
    assert TOKENIZER.encode(TOKENIZER.decode(odd), add_special_tokens=False) != odd
    restarts = 0
    for t in range(30):
        ids, fresh = conversation.prompt(observation(f"room {t}"))
        if fresh and t:
            restarts += 1
            assert any(ids[i : i + len(odd)] == odd for i in range(len(ids)))
        conversation.record(odd, "")
    assert restarts > 0


def test_stepwise_repeats_task_and_last_steps():
    prompts, rows = play(build("stepwise", "alfworld").start("open the door"), 4)
    assert all(fresh for _, fresh in prompts) and len(rows) == 4
    first, last = prompts[0][0], prompts[3][0]
    assert "room 0" in first and "Observation 1" not in first
    assert "Your task is to: open the door" in last
    assert "You have taken 3 step(s)" in last and "at step 4" in last
    pairs = "[Observation 2: 'room 1', Action 2: 'go 1']\n[Observation 3: 'room 2', Action 3: 'go 2']"
    assert f"The latest 2 observation(s) and the action(s) you took:\n{pairs}\n" in last
    assert "room 0" not in last
    assert "'go left'\n'take key'" in last and "'help'" not in last
    assert "<think> </think>" in last and "<action> </action>" in last


def test_stepwise_history_gives_way_by_whole_steps():
    long = play(build("stepwise", "alfworld", history=5, window=4000).start("open the door"), 7)[1][-1]
    lengths = []
    for window in range(len(long) + 40, len(long) - 150, -10):
        prompts, rows = play(
            build("stepwise", "alfworld", history=5, window=window).start("open the door"), 7
        )
        text = prompts[-1][0]
        shown = [t for t in range(6) if f"'room {t}'" in text]
        lengths.append(len(shown))
        assert shown == list(range(6 - len(shown), 6))
        assert f"The latest {len(shown)} observation(s)" in text
        assert "Your task is to: open the door" in text
        assert len(rows[-1]) <= window
    assert lengths[0] == 5 and sorted(set(lengths), reverse=True) == list(dict.fromkeys(lengths))
    assert lengths[-1] < 4


@pytest.mark.parametrize("form", ["append", "stepwise"])
def test_a_prompt_that_cannot_fit_says_what_to_do(form):
    builder = build(form, "alfworld", window=100, response=30)
    with pytest.raises(PromptError, match=r"first observation take \d+ tokens.*raise prompt.window"):
        builder.start("open the door").prompt(observation("room"))
    builder = build(form, "alfworld", window=800, response=30)
    conversation = builder.start("open the door")
    conversation.prompt(observation("room"))
    conversation.record([TURNS.stop_id], "")
    with pytest.raises(PromptError, match="current observation take"):
        conversation.prompt(observation("room " * 800))


def test_qwen_like_template_inserts_its_system_message_once_a_row():
    tokenizer = toy_tokenizer(CHATML_TEMPLATE)
    turns = TurnFormat(tokenizer)
    conversation = build("append", "alfworld", turns=turns, window=2000).start("open the door")
    ids, _ = conversation.prompt(observation("room"))
    conversation.record([turns.stop_id], "")
    more, _ = conversation.prompt(observation("room"))
    assert tokenizer.decode(ids + more).count("You are a helpful toy.") == 1


def test_a_form_the_template_lacks_is_refused():
    with pytest.raises(PromptError, match="prompt.form=stepwise"):
        build("stepwise", "alfworld_bare")


def test_unknown_template_names_the_others():
    with pytest.raises(PromptError, match="alfworld, alfworld_bare"):
        load_template("alfwrld")


@pytest.mark.parametrize(
    ("append", "message"),
    [
        ({"first": "{observaton}", "later": "", "restart": "{instruction}"}, "observaton"),
        ({"first": "{", "later": "", "restart": "{instruction}"}, "literal brace"),
        ({"first": "", "later": "", "restart": "{observation}"}, "add {instruction}"),
        ({"first": "", "later": "", "restart": "{instruction}", "latter": ""}, "latter"),
    ],
)
def test_wrong_templates_are_refused_when_read(append, message):
    with pytest.raises(ValueError, match=message):
        PromptTemplate(system=None, append=append)


def test_quoted_commands():
    assert quote_admissible(("look", "help", "go to a 1")) == "'look'\n'go to a 1'"
    assert quote_admissible(()) == ""
