"""What counts as a well-formed response."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.prompts.parse import Parsed, parse, parser
from envs.worlds import world_class


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        ("<think>find mug</think><action>go to shelf 2</action>", Parsed("find mug", "go to shelf 2", True)),
        (" \n<think> a\nb </think>\n\n<action> look </action>\n", Parsed("a\nb", "look", True)),
        ("<think></think><action>look</action>", Parsed("", "look", True)),
        # Admissibility is the environment's question, not the parser's.
        ("<think>x</think><action>fly to the moon</action>", Parsed("x", "fly to the moon", True)),
        # An action that is clear is played although the form is wrong.
        ("<action>look</action> </think> <think>", Parsed("", "look", False)),
        ("<action>look</action>", Parsed("", "look", False)),
        ("<action>look</action><think>x</think>", Parsed("x", "look", False)),
        ("<think>x</think><action>look</action> You see a mug.", Parsed("x", "look", False)),
        ("Sure! <think>x</think><action>look</action>", Parsed("x", "look", False)),
        ("<think>x</think> so <action>look</action>", Parsed("x", "look", False)),
        ("<think>x<action>look</action>", Parsed("", "look", False)),
        ("<think>x</think><think>y</think><action>look</action>", Parsed("", "look", False)),
        ("<think>a<think>b</think><action>look</action>", Parsed("b", "look", False)),
        # No clear action: nothing is played.
        ("<think>x</think><action>look</action><action>help</action>", Parsed("x", "", False)),
        ("<think>x</think><action>look", Parsed("x", "", False)),
        ("<think>x</think><action></action>", Parsed("x", "", False)),
        ("<think>x</think></action>look<action>", Parsed("x", "", False)),
        ("<think>x <action>look</think></action>", Parsed("", "", False)),
        ("look", Parsed("", "", False)),
        ("", Parsed("", "", False)),
    ],
)
def test_cases(response, expected):
    assert parse(response) == expected


pieces = st.sampled_from(["<think>", "</think>", "<action>", "</action>", "look", " ", "\n", "<", "思"])


@given(st.one_of(st.text(), st.lists(pieces, max_size=9).map("".join)))
def test_never_raises_and_only_the_one_form_is_well_formed(response):
    parsed = parse(response)
    if parsed.well_formed:
        assert parsed.action
        for tag in ("<think>", "</think>", "<action>", "</action>"):
            assert response.count(tag) == 1
            assert tag not in parsed.action + parsed.thought
        order = [response.index(t) for t in ("<think>", "</think>", "<action>", "</action>")]
        assert order == sorted(order)
        assert response.strip().startswith("<think>") and response.strip().endswith("</action>")


# What the public code makes of a response: (action played, valid). Written down from runs of its
# `alfworld_projection` and `webshop_projection` (genalyu/3SPO@da384457,
# agent_system/environments/env_package/*/projection.py).
PUBLIC = [
    ("<think>a</think><action>go to desk 1</action>", "go to desk 1", True),
    # The tags anywhere, in any order, with anything around them; the action is lower-cased.
    ("Sure! <think>a</think> <action>Go to desk 1</action>", "go to desk 1", True),
    ("<action> Look </action> later <think>x</think>", "look", True),
    ("</think><think></action>look<action>", "", True),
    ("<think>x</think><ACTION>Look</ACTION>", "look", True),
    ("<think>x</think><action>look</action><action>help</action>", "look", True),
    # Any action is valid, an empty one too.
    ("<think>x</think><action>fly to the moon</action>", "fly to the moon", True),
    ("<think>x</think><action></action>", "", True),
    # Without a thought (in lower case) or with Chinese characters it is played and invalid.
    ("<action>look</action>", "look", False),
    ("<THINK>x</THINK><action>look</action>", "look", False),
    ("<think>\u601d</think><action>look</action>", "look", False),
    ("<think>x</think><action>\u770b look</action>", "\u770b look", False),
    # Japanese kana are not what it looks for.
    ("<think>\u30fc</think><action>look</action>", "look", True),
]


@pytest.mark.parametrize("world", ["alfworld", "webshop"])
@pytest.mark.parametrize(("response", "action", "valid"), PUBLIC)
def test_the_papers_rule_on_responses_with_an_action(response, action, valid, world):
    parsed = parser("papers", world_class(world).papers_tail)(response)
    assert (parsed.action, parsed.well_formed, parsed.listed) == (action, valid, False)


@pytest.mark.parametrize(
    ("response", "alfworld", "webshop"),
    [
        ("<think>x</think><action>look", "<think>x</think><action>look", "</think><action>look"),
        (
            "I would rather open the drawer next to the Bed",
            "pen the drawer next to the bed",
            "awer next to the bed",
        ),
        ("click[Buy Now]", "click[buy now]", "click[buy now]"),
        ("", "", ""),
    ],
)
def test_the_papers_rule_plays_the_end_of_a_response_without_an_action(response, alfworld, webshop):
    for world, action in (
        ("alfworld", alfworld),
        ("webshop", webshop),
        ("docs/examples/storeroom.py:StoreroomWorld", alfworld),
    ):
        parsed = parser("papers", world_class(world).papers_tail)(response)
        assert (parsed.action, parsed.well_formed) == (action, False)


def test_the_papers_rule_keeps_the_first_thought():
    assert parser("papers", 30)("<think> a </think>b<think>c</think>").thought == "a"
    assert parser("papers", 30)("</think>b<think>c").thought == "c"


@given(st.one_of(st.text(), st.lists(pieces, max_size=9).map("".join)))
def test_what_is_strictly_well_formed_is_so_by_the_papers_rule_unless_it_is_chinese(response):
    strict, loose = parse(response), parser("papers", 30)(response)
    if strict.well_formed and response.lower().count("<action>") == response.lower().count("</action>") == 1:
        assert loose.action == strict.action.lower().strip()
        assert loose.well_formed == (not any("\u4e00" <= letter <= "\u9fff" for letter in response))


def test_the_strict_rule_is_the_default_one():
    assert parser("strict", 30) is parse
