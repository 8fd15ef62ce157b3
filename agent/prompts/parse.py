"""From a response to the command it gives: strictly, or as the papers' public code does.

Strictly, a response is *well-formed* when it is exactly `<think>…</think><action>…</action>`: one of each,
in this order, closed, the action not empty, and nothing but white space around them. The thought may be
empty. Where the prompt opens the thought (`agent.prompts.turns.TurnFormat.opened`), what it has opened is put
in front of the response before it is parsed; a closing tag that nothing has opened is not well-formed.
Whether the environment would accept the action (`admissible`) is another question; a step is *valid* when
both hold.

The papers' rule (`parse_as_papers`) is verl-agent's, in `projection.py` of each of its environments: the
tags anywhere, and no Chinese characters. What it calls valid needs no admissible action.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

_INNER = r"((?:(?!</?(?:think|action)>).)*)"
_WELL_FORMED = re.compile(rf"\s*<think>{_INNER}</think>\s*<action>{_INNER}</action>\s*", re.DOTALL)
_THOUGHT = re.compile(rf"<think>{_INNER}</think>", re.DOTALL)
_CHINESE = re.compile("[\u4e00-\u9fff]")


@dataclass(frozen=True, slots=True)
class Parsed:
    """What a response says.

    Attributes:
        thought: Text of the thought, stripped; "" unless there is exactly one.
        action: The command, stripped; "" if there is none or more than one to choose from.
        well_formed: See the module docstring.
        listed: A valid step needs an action that the environment lists, too.
    """

    thought: str
    action: str
    well_formed: bool
    listed: bool = True


Parser = Callable[[str], Parsed]


def parser(rule: Literal["strict", "papers"], tail: int) -> Parser:
    """Returns what reads the responses of a run.

    Args:
        rule: See the module docstring.
        tail: See `parse_as_papers`; the world says it (`envs.world.World.papers_tail`).
    """
    return parse if rule == "strict" else partial(parse_as_papers, tail=tail)


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


def parse_as_papers(response: str, *, tail: int) -> Parsed:
    """Parses any text as the papers' public code does; never raises.

    The action is what stands between the first `<action>` and the first `</action>`, upper or lower case,
    lower-cased and stripped; it is played whether or not the response is valid. Valid is a response with
    both, with `<think>` and `</think>` in lower case, all of them anywhere, and no Chinese characters; so an
    empty action, and tags in another order, are valid.

    Args:
        response: Any text.
        tail: Characters from the end of a response without an action that are played instead, lower-cased.
    """
    lowered = response.lower()
    start, stop = lowered.find("<action>"), lowered.find("</action>")
    found = start >= 0 and stop >= 0
    action = lowered[start + len("<action>") : stop].strip() if found else lowered[-tail:]
    tagged = "<think>" in response and "</think>" in response
    thought = response.partition("<think>")[2].partition("</think>")[0].strip() if tagged else ""
    return Parsed(thought, action, found and tagged and not _CHINESE.search(response), listed=False)
