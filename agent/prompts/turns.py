"""A chat template, reduced to the token ids around what the policy samples.

A chat template renders whole conversations, and rendering one again after a response would
re-tokenise that response. Here the template is rendered once with markers, cut at the markers, and only
the pieces *between* responses are ever tokenised, so the sampled ids stay as sampled.

Thoughts are the one departure from the template. Many drop those of earlier responses, and the block that
opens or denies one (`agent.prompts.thinking`), once the conversation goes on. A row that only grows cannot:
it keeps what the policy saw and sampled.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from typing import Any

from jinja2 import TemplateError as JinjaError
from transformers import PreTrainedTokenizerBase

from agent.prompts.thinking import (
    CLOSE,
    OPEN,
    Choice,
    TemplateError,
    Thinking,
    block,
    choose,
    opened,
    same_but_for_thoughts,
)
from configs.text import suggest

__all__ = ["TemplateError", "TurnFormat"]

_SYSTEM, _USER, _ANSWER, _AGAIN = "QSYSTEMQ", "QUSERQ", "QANSWERQ", "QAGAINQ"
_THOUGHT = "QTHOUGHTQ"
_PADDING = (" \n", "\n ")


class TurnFormat:
    """Token ids of prompts and continuations in a tokenizer's own chat format.

    Args:
        tokenizer: Any Hugging Face tokenizer with a chat template. A template that inserts a default
            system message keeps doing so when `first` is called without one.
        thinking: Whose thoughts, see `agent.prompts.thinking.choose`.
        arguments: Further arguments of the template.

    Attributes:
        stop_id: The token that ends a response in this template.
        stop_ids: Tokens to stop at: `stop_id`, and the tokenizer's `eos_token_id` if it is another.
        opened: The thought that every prompt opens at its end, "" if none: responses go on from it.
        thinking: Whose thoughts it is, in a line; "" where the template treats none in a way of its own.

    Raises:
        TemplateError: There is no template, it does not take the arguments, it alters or drops a message, it
            renders a conversation differently once it goes on (thoughts apart), or a response does not end
            with a single token.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        thinking: Thinking = "auto",
        arguments: Mapping[str, Any] | None = None,
    ) -> None:
        if not tokenizer.chat_template:
            raise TemplateError(f"{_name(tokenizer)} has no chat_template: set tokenizer.chat_template")
        self._tokenizer = tokenizer
        self._arguments = _checked(tokenizer, arguments or {})
        choice = choose(lambda given: self._render(None, given=given), thinking, self._arguments)
        self._arguments = choice.arguments
        self.opened = opened(self._render(None))
        self.thinking = self._in_words(choice)
        self._trims = {role: self._trimmed(role) for role in ("system", "user")}
        self._bare = _cut(tokenizer, self._render(None), [_USER])
        self._full = _cut(tokenizer, self._render(_SYSTEM), [_SYSTEM, _USER])
        after, after_full = self._after_answer(None), self._after_answer(_SYSTEM)
        if after != after_full:
            raise TemplateError(
                f"{_name(tokenizer)}: what follows a response depends on the system message ({after!r} "
                f"without, {after_full!r} with one); use a template whose turns are independent"
            )
        closing, self._next_suffix = _cut(tokenizer, after, [_AGAIN])
        self.stop_id, self._next_prefix = self._split_stop(closing)
        eos = tokenizer.eos_token_id
        self.stop_ids = (self.stop_id,) if eos in (None, self.stop_id) else (self.stop_id, eos)

    def first(self, system: str | None, user: str) -> list[int]:
        """Returns the ids of a new conversation, up to where the response begins.

        Args:
            system: System message; None leaves it to the template (which may insert its own).
            user: First user message.
        """
        user = self._as_told("user", user)
        if system is None:
            return self.encode(user.join(self._bare))
        opening, middle, end = self._full
        return self.encode(opening + self._as_told("system", system) + middle + user + end)

    def next(self, user: str, *, closed: bool = True) -> list[int]:
        """Returns the ids between a response and the next one.

        Args:
            user: The next user message.
            closed: Whether the response before ended with a stop token. One that was cut by length
                did not: then the stop token opens the continuation, as a token that was never sampled.
        """
        ids = self.encode(self._next_prefix + self._as_told("user", user) + self._next_suffix)
        return ids if closed else [self.stop_id, *ids]

    def decode(self, ids: Sequence[int]) -> str:
        """Returns the text of a response, without the stop token at its end."""
        end = len(ids) - 1 if ids and ids[-1] in self.stop_ids else len(ids)
        return self._tokenizer.decode(ids[:end], skip_special_tokens=False)

    def reach(self, ids: Sequence[int], text: str) -> int | None:
        """Returns how many tokens it takes until a response holds `text`, None if it never does."""
        low, high = 0, len(ids)  # the first `low` tokens do not hold it, the first `high` do
        if text not in self.decode(ids):
            return None
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if text in self.decode(ids[:middle]) else (middle, high)
        return high

    def encode(self, text: str) -> list[int]:
        """Returns the ids of a piece of text, nothing added."""
        return self._tokenizer.encode(text, add_special_tokens=False)

    def unopened(self, text: str) -> str:
        """Returns how a response begins that is to begin with `text`, given what the prompt has opened."""
        return text.removeprefix(OPEN) if self.opened else text

    def _render(
        self,
        system: str | None,
        user: str = _USER,
        *,
        answer: str | None = None,
        given: Mapping[str, Any] | None = None,
    ) -> str:
        """Renders a conversation; with an answer it goes on, `given` replaces the arguments chosen."""
        messages = [] if system is None else [{"role": "system", "content": system}]
        messages.append({"role": "user", "content": user})
        if answer is not None:
            messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": _AGAIN}]
        arguments = self._arguments if given is None else given
        try:
            return self._tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=True, **arguments
            )
        except (JinjaError, TypeError, ValueError) as error:
            told = f" with prompt.template_args {dict(arguments)!r}" if arguments else ""
            raise TemplateError(
                f"{_name(self._tokenizer)}: the chat template cannot be rendered{told}: {error}"
            ) from error

    def _in_words(self, choice: Choice) -> str:
        drops = _THOUGHT not in self._render(None, answer=f"{OPEN}\n{_THOUGHT}\n{CLOSE}\n\n{_ANSWER}")
        if not (choice.own or drops):
            return ""
        denied = "the prompt ends with an empty thought and " if CLOSE in block(self._render(None)) else ""
        prompt = "the prompt opens <think>" if self.opened else f"{denied}the response opens <think>"
        kept = "; append-only rows keep old thoughts, which the template would drop" if drops else ""
        return f"{choice.by}, {prompt}{kept}"

    def _trimmed(self, role: str) -> bool:
        """Whether the template takes white space from around a message."""
        system, user = (_SYSTEM, _USER) if role == "system" else (None, _USER)
        padded = {"system": (_SYSTEM.join(_PADDING), _USER), "user": (None, _USER.join(_PADDING))}
        plain, found = self._render(system, user), self._render(*padded[role])
        if found not in (plain, self._padded(plain, role)):
            raise TemplateError(
                f"{_name(self._tokenizer)}: the chat template renders {padded[role]!r} as {found!r}; "
                "a message must be rendered as it is, or without the white space around it"
            )
        return found == plain

    @staticmethod
    def _padded(plain: str, role: str) -> str:
        marker = _SYSTEM if role == "system" else _USER
        return plain.replace(marker, marker.join(_PADDING))

    def _as_told(self, role: str, text: str) -> str:
        return text.strip() if self._trims[role] else text

    def _after_answer(self, system: str | None) -> str:
        """Returns what the template puts after the first response; the text before must be the prompt."""
        before, after = _cut(self._tokenizer, self._render(system, answer=_ANSWER), [_ANSWER])
        prompt = self._render(system)
        if not same_but_for_thoughts(prompt, before):
            raise TemplateError(
                f"{_name(self._tokenizer)}: a prompt is rendered as {prompt!r}, but as {before!r} once it is "
                "answered; append-only rows need a template that never rewrites what came before"
            )
        return after

    def _split_stop(self, closing: str) -> tuple[int, str]:
        """Splits the text after a response into the id of its stop token and the rest."""
        ids = self.encode(closing)
        special = set(self._tokenizer.all_special_ids) | set(self._tokenizer.added_tokens_decoder)
        if not ids or ids[0] not in special:
            raise TemplateError(
                f"{_name(self._tokenizer)}: a response is followed by {closing!r}, which does not begin "
                "with a special token; the policy could not tell where to stop"
            )
        stop = self._tokenizer.convert_ids_to_tokens(ids[0])
        if not closing.startswith(stop):
            raise TemplateError(f"{_name(self._tokenizer)}: {closing!r} does not begin with token {stop!r}")
        return ids[0], closing[len(stop) :]


def _cut(tokenizer: PreTrainedTokenizerBase, text: str, markers: Sequence[str]) -> list[str]:
    """Splits `text` at each marker, which must occur once and in order."""
    pieces = []
    for marker in markers:
        if text.count(marker) != 1:
            raise TemplateError(
                f"{_name(tokenizer)}: the chat template renders a message {text.count(marker)} times instead "
                f"of once (looking for {marker} in {text!r})"
            )
        piece, text = text.split(marker)
        pieces.append(piece)
    return [*pieces, text]


def _checked(tokenizer: PreTrainedTokenizerBase, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the arguments, each of which the template must know."""
    source = tokenizer.get_chat_template()
    taken = {
        *inspect.signature(tokenizer.apply_chat_template).parameters,
        *tokenizer.special_tokens_map,
        "messages",
    }
    for name in arguments:
        if name in taken or not re.search(rf"\b{re.escape(name)}\b", source):
            names = sorted(set(re.findall(r"\b[a-z][a-z_]+_[a-z_]+\b", source)) - taken)
            raise TemplateError(
                f"prompt.template_args.{name}: {_name(tokenizer)}'s chat template reads no such argument"
                f"{suggest(name, names)} Leave it out."
            )
    return arguments


def _name(tokenizer: PreTrainedTokenizerBase) -> str:
    return tokenizer.name_or_path or type(tokenizer).__name__
