"""What counts as a well-formed response."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.parse import Parsed, parse


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
