"""Whose `<think>` a model writes: the one our prompts ask for, or the one of its own chat template.

A template may have a switch, the argument `enable_thinking`, and may end its generation prompt with a block:
a thought it opens (`<think>`, so that a response holds the closing tag only), or an empty one
(`<think></think>`, which says that there is none). A template with neither has no thinking of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from configs.errors import UserError

Thinking = Literal["auto", "ours", "template"]

SWITCH = "enable_thinking"
OPEN, CLOSE = "<think>", "</think>"
_BLOCK = re.compile(rf"{OPEN}\s*(?:{CLOSE}\s*)?\Z")


class TemplateError(UserError, ValueError):
    """The tokenizer's chat template cannot be used, or not as it was asked for."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What `choose` chose.

    Attributes:
        by: Whose thoughts they are.
        arguments: What the template is rendered with.
        own: Whether the template has thinking of its own.
    """

    by: Literal["ours", "template"]
    arguments: Mapping[str, Any]
    own: bool


def choose(prompt: Callable[[Mapping[str, Any]], str], wanted: Thinking, given: Mapping[str, Any]) -> Choice:
    """Looks at a template's generation prompts and chooses.

    `auto` is what the template does by itself: `template` where its thinking is on without being asked for,
    else `ours`. An `enable_thinking` among the arguments decides instead.

    Args:
        prompt: Renders the prompt of a fixed conversation with the arguments it is given.
        wanted: See `PromptConfig.thinking`.
        given: Arguments of the template that the user set.

    Raises:
        TemplateError: the template cannot do what is wanted, or `given` says the contrary.
    """
    wanted = _agreed(wanted, given)
    rest = {key: value for key, value in given.items() if key != SWITCH}
    plain, on, off = (prompt(rest | switch) for switch in ({}, {SWITCH: True}, {SWITCH: False}))
    switch = on != off
    if not (switch or block(plain)):
        if wanted == "template":
            raise TemplateError(
                "prompt.thinking=template, but this chat template has no thinking of its own (neither "
                f"{SWITCH} nor a {OPEN} in its generation prompt): use prompt.thinking=ours"
            )
        return Choice("ours", rest, own=False)
    if wanted == "auto":
        wanted = "template" if (plain == on if switch else opened(plain)) else "ours"
    if wanted == "ours":
        if opened(off):
            raise TemplateError(
                f"prompt.thinking=ours, but this chat template opens a thought ({opened(off)!r}) that cannot "
                "be switched off: use prompt.thinking=template"
            )
        return Choice("ours", rest | ({SWITCH: False} if switch else {}), own=True)
    if CLOSE in block(on):
        raise TemplateError(
            "prompt.thinking=template, but this chat template always ends the prompt with an empty thought "
            f"({block(on)!r}): use prompt.thinking=ours"
        )
    return Choice("template", rest | ({SWITCH: True} if switch else {}), own=True)


def block(prompt: str) -> str:
    """The thought, open or empty, that a prompt ends with; "" if there is none."""
    found = _BLOCK.search(prompt)
    return found[0] if found else ""


def opened(prompt: str) -> str:
    """The block, if it is open: what a response goes on from."""
    found = block(prompt)
    return "" if CLOSE in found else found


def same_but_for_thoughts(prompt: str, answered: str) -> bool:
    """Whether what stands before a response is the prompt, give or take such a block at the end."""
    if prompt == answered:
        return True
    blocks = block(prompt), block(answered)
    bare = [
        text[: len(text) - len(end)].rstrip() for text, end in zip((prompt, answered), blocks, strict=True)
    ]
    return any(blocks) and bare[0] == bare[1]


def _agreed(wanted: Thinking, given: Mapping[str, Any]) -> Thinking:
    """What is wanted, with what the argument says, if it is set."""
    if SWITCH not in given:
        return wanted
    if not isinstance(given[SWITCH], bool):
        raise TemplateError(f"prompt.template_args.{SWITCH} must be true or false, got {given[SWITCH]!r}")
    says: Thinking = "template" if given[SWITCH] else "ours"
    if wanted not in ("auto", says):
        raise TemplateError(
            f"prompt.thinking={wanted} sets {SWITCH} itself, but prompt.template_args.{SWITCH} says "
            f"{given[SWITCH]!r}: leave one of them out"
        )
    return says
