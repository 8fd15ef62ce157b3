"""Toys that the tests of every package share: an environment, a tokenizer, a model, a scripted policy.

None of them needs a file or a network, and a whole rollout of them takes milliseconds.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from agent.policy import Sampling
from agent.types import Generation, Request
from configs.seeds import derive
from envs.base import Env, EnvError, Observation, Outcome

COMPACT_TEMPLATE = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}"
    "{% if m.role == 'assistant' %}<|im_end|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
CHATML_TEMPLATE = (
    "{% if messages[0].role != 'system' %}<|im_start|>system\nYou are a helpful toy.<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIAL = ["<|endoftext|>", "<|im_end|>", "<|im_start|>", "<|system|>", "<|user|>", "<|assistant|>"]
TAGS = ["<think>", "</think>", "<action>", "</action>"]
COMMANDS = ("go left", "go right", "take key", "open door")
WORDS = (
    *("go", " left", " right", "take", " key", "open", " door", " room", "room", " in", " of", " hands"),
    *(" empty", "Your", " task", " is", " to", "Nothing", " happens", "You", " the", "now"),
)


@dataclass(frozen=True, slots=True)
class ToyTask:
    """A corridor of `rooms` rooms (1-based), a key in one of them, a door in the last."""

    id: str
    family: str
    split: str
    rooms: int
    start: int
    key: int


def toy_tasks(n: int, seed: int = 0, *, rooms: int = 3, split: str = "train") -> list[ToyTask]:
    """Draws `n` tasks; the family says whether the key lies in the first room (`near`)."""
    tasks = []
    for i in range(n):
        rng = random.Random(derive(seed, "toy task", split, i))
        start, key = rng.randint(1, rooms), rng.randint(1, rooms)
        family = "near" if start == key else "far"
        tasks.append(ToyTask(f"{split}-{i}", family, split, rooms, start, key))
    return tasks


class ToyEnv(Env):
    """Fetch the key, open the door: at most 2·rooms commands for the expert, fully observed.

    A command that is not admissible answers "Nothing happens." and costs a step, as in ALFWorld.
    """

    def __init__(self, max_steps: int = 8) -> None:
        self.max_steps = max_steps
        self._task: ToyTask | None = None
        self._state = (0, False, 0)  # room, key held, steps taken
        self._done = True

    def reset(self, task: ToyTask, seed: int = 0) -> Observation:
        """Starts `task`; deterministic, so `seed` is not used."""
        self._task, self._state, self._done = task, (task.start, False, 0), False
        self.instruction = "open the door"
        return self._observe(self._describe() + f"\nYour task is to: {self.instruction}")

    def step(self, action: str) -> Outcome:
        """Plays one of `COMMANDS`."""
        if self._done:
            raise EnvError("ToyEnv.step before reset or after the end: call reset(task)")
        room, held, taken = self._state
        won = False
        text = None
        if action not in self._admissible():
            text = "Nothing happens."
        elif action == "go left":
            room -= 1
        elif action == "go right":
            room += 1
        elif action == "take key":
            held = True
        else:
            won = True
        self._state = (room, held, taken + 1)
        truncated = not won and taken + 1 >= self.max_steps
        self._done = won or truncated
        observation = self._observe(text or self._describe())
        return Outcome(observation, float(won), won, truncated, won, float(won))

    def snapshot(self) -> object:
        """See `Env.snapshot`."""
        return self._task, self._state, self._done

    def restore(self, snapshot: object) -> Observation:
        """See `Env.restore`."""
        self._task, self._state, self._done = snapshot
        return self._observe(self._describe())

    def _admissible(self) -> tuple[str, ...]:
        room, held, _ = self._state
        task = self._task
        legal = (room > 1, room < task.rooms, room == task.key and not held, room == task.rooms and held)
        return tuple(c for c, ok in zip(COMMANDS, legal, strict=True) if ok)

    def _describe(self) -> str:
        room, held, _ = self._state
        where = "hands" if held else f"room {self._task.key}"
        return f"You in room {room} of {self._task.rooms} key in {where}"

    def _observe(self, text: str) -> Observation:
        room, held, _ = self._state
        return Observation(text, f"{room}|{held}", self._admissible())


def expert_action(text: str) -> str:
    """The command the expert gives after the observation `text` ("go right" if it cannot tell)."""
    found = re.findall(r"You in room (\d+) of (\d+) key in (?:room (\d+)|hands)", text)
    if not found:
        return "go right"
    room, rooms, key = found[-1]
    goal = int(key or rooms)
    if int(room) == goal:
        return "take key" if key else "open door"
    return "go right" if goal > int(room) else "go left"


def respond(action: str) -> str:
    """A well-formed response that gives `action`."""
    return f"<think>now</think><action>{action}</action>"


def toy_tokenizer(template: str = COMPACT_TEMPLATE, tags: Sequence[str] = TAGS) -> PreTrainedTokenizerFast:
    """A byte-level BPE of some 350 tokens; `go` is one token, yet `g`,`o` decode to the same text.

    Args:
        template: `COMPACT_TEMPLATE` (the embedded tokenizer's) or `CHATML_TEMPLATE` (Qwen2.5's, which
            inserts a system message of its own when none is given).
        tags: Which of `TAGS` are tokens of their own, though not special ones: all (the embedded
            tokenizer's), `<think>` and `</think>` (Qwen3's) or none (Qwen2.5's).
    """
    vocab = {token: i for i, token in enumerate([*SPECIAL, *tags])}
    for symbol in sorted(pre_tokenizers.ByteLevel.alphabet()):
        vocab[symbol] = len(vocab)
    merges = []
    for word in WORDS:
        symbols = [c if c != " " else "Ġ" for c in word]
        left = symbols[0]
        for right in symbols[1:]:
            if left + right not in vocab:
                merges.append((left, right))
                vocab[left + right] = len(vocab)
            left += right
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in SPECIAL])
    tokenizer.add_tokens([AddedToken(t, special=False, normalized=False) for t in tags])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=SPECIAL[2:],
        chat_template=template,
        clean_up_tokenization_spaces=False,
    )


def tiny_model(
    vocab: int, *, hidden: int = 32, layers: int = 2, intermediate: int = 64, seed: int = 0, std: float = 0.02
) -> Qwen2ForCausalLM:
    """A random Qwen2 (4 heads, 2 key-value heads, tied embeddings), the same for equal arguments.

    Args:
        std: Of the initial weights. The usual 0.02 is close to a uniform distribution over tokens;
            0.3 gives a peaked one, which tests of log-probabilities want.
    """
    config = Qwen2Config(
        vocab_size=vocab,
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        initializer_range=std,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=None,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return Qwen2ForCausalLM(config).eval()


class ScriptedPolicy:
    """A `Policy` that answers with what `script` says, for tests that need no model.

    Args:
        tokenizer: Turns the script's text into response tokens.
        script: (text of the whole token row so far, generator of this response) → response text
            without its stop token.
        window: Longest token row.

    Attributes:
        calls: Number of requests of each `generate` call.
        live: Keys not released.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerFast,
        script: Callable[[str, np.random.Generator], str],
        window: int = 4096,
    ) -> None:
        self.version = 0
        self.window = window
        self.dtype = torch.float32
        self.calls: list[int] = []
        self._tokenizer, self._script = tokenizer, script
        self._rows: dict[int, list[int]] = {}

    @property
    def live(self) -> set[int]:
        """Keys not released."""
        return set(self._rows)

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> list[Generation]:
        """See `Policy.generate`; log-probabilities are −0.5 each."""
        self.calls.append(len(requests))
        return [self._answer(request) for request in requests]

    def _answer(self, request: Request) -> Generation:
        row = self._rows.setdefault(request.key, [])
        if request.fresh:
            row.clear()
        row.extend(request.ids)
        text = self._script(self._tokenizer.decode(row), np.random.default_rng(request.seed))
        ids = self._tokenizer.encode(text, add_special_tokens=False) + [self._tokenizer.eos_token_id]
        cut = min(request.max_new_tokens, self.window - len(row))
        finish = "stop" if len(ids) <= cut else "length"
        row.extend(ids[:cut])
        return Generation(ids[:cut], [-0.5] * len(ids[:cut]), finish)

    def release(self, key: int) -> None:
        """See `Policy.release`."""
        self._rows.pop(key, None)

    takes_adapters = False

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]], version: int) -> None:
        """Takes the version only."""
        self.version = version

    def held_weights(self) -> None:
        """It holds none."""


def scripted_expert(error: float = 0.0) -> Callable[[str, np.random.Generator], str]:
    """A script that plays the expert, and a random command with probability `error`."""

    def script(text: str, rng: np.random.Generator) -> str:
        if rng.random() < error:
            return respond(COMMANDS[int(rng.integers(len(COMMANDS)))])
        return respond(expert_action(text))

    return script
