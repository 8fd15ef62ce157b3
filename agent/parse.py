"""From a response to the command it gives, strictly.

A response is *well-formed* when it is exactly `<think>…</think><action>…</action>`: one of each,
in this order, closed, the action not empty, and nothing but white space around them. The thought may be
empty. Where the prompt opens the thought (`agent.turns.TurnFormat.opened`), what it has opened is put in
front of the response before it is parsed; a closing tag that nothing has opened is not well-formed. Whether
the environment would accept the action (`admissible`) is another question; a step is *valid* when both hold.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_INNER = r"((?:(?!</?(?:think|action)>).)*)"
_WELL_FORMED = re.compile(rf"\s*<think>{_INNER}</think>\s*<action>{_INNER}</action>\s*", re.DOTALL)
_THOUGHT = re.compile(rf"<think>{_INNER}</think>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Parsed:
    """What a response says.

    Attributes:
        thought: Text of the thought, stripped; "" unless there is exactly one.
        action: The command, stripped; "" if there is none or more than one to choose from.
        well_formed: See the module docstring.
    """

    thought: str
    action: str
    well_formed: bool


def parse(response: str) -> Parsed:
    """Parses any text; never raises.

    A response that is not well-formed still gives its action if there is no doubt which one: exactly
    one `<action>`, closed once after it. It is played, costs a step and counts as invalid.
    """
    whole = _WELL_FORMED.fullmatch(response)
    if whole:
        thought, action = whole[1].strip(), whole[2].strip()
        return Parsed(thought, action, bool(action))
    thoughts = _THOUGHT.findall(response)
    return Parsed(thoughts[0].strip() if len(thoughts) == 1 else "", _only_action(response), False)


def _only_action(response: str) -> str:
    """Returns the text between the only `<action>` and the only `</action>`, "" if that is not clear."""
    if response.count("<action>") != 1 or response.count("</action>") != 1:
        return ""
    action = response.split("<action>")[1].split("</action>")[0].strip()
    in_order = response.index("<action>") < response.index("</action>")
    return action if in_order and "<think>" not in action and "</think>" not in action else ""
