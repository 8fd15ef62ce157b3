"""The embedded policies' architecture: a small Qwen2 and a BPE tokenizer of an environment's own text.

Both are ordinary Hugging Face objects: `AutoModelForCausalLM` and `AutoTokenizer` load the folder.
Byte-level BPE can spell any text; frequent words of the engine are one token each.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import torch
from tokenizers import AddedToken, pre_tokenizers, trainers
from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen2Tokenizer

END_OF_TEXT, STOP = "<|endoftext|>", "<|im_end|>"
ROLES = ("<|system|>", "<|user|>", "<|assistant|>")
TAGS = ("<think>", "</think>", "<action>", "</action>")

# One token a message border instead of ChatML's six: at this size prompts are mostly observations.
CHAT_TEMPLATE = (
    "{% for m in messages %}{{ '<|' + m['role'] + '|>' + m['content'] }}"
    "{% if m['role'] == 'assistant' %}{{ '<|im_end|>' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


@dataclass(frozen=True)
class Architecture:
    """Size of an embedded policy.

    Attributes:
        vocab: Tokens, everything included.
        hidden, layers, heads, kv_heads, intermediate: As in `Qwen2Config`.
        window: Longest row (tokens).
        whole: Which texts are one token each, though Qwen2's tokenizer splits numbers into digits and
            punctuation from letters; see `WHOLE`.
    """

    vocab: int = 896
    hidden: int = 128
    layers: int = 4
    heads: int = 4
    kv_heads: int = 2
    intermediate: int = 384
    window: int = 2048
    whole: Literal["household", "shop"] = "household"


WHOLE = {
    "household": tuple(f" {n}" for n in range(1, 61)),
    "shop": ("' [SEP] '", *(f"{n:02}" for n in range(100))),
}
"""The numbers of ALFWorld's things; WebShop's separator, and any two digits of its ids and prices."""


def train_tokenizer(texts: Iterable[str], arch: Architecture) -> Qwen2Tokenizer:
    """Trains a byte-level BPE on `texts` (deterministic), with the chat tokens, tags and `WHOLE` built in.

    It splits text as Qwen2's tokenizer does, because that is the class `AutoTokenizer` gives every Qwen2
    folder, whatever its files say.
    """
    added = (*TAGS, *WHOLE[arch.whole])
    bpe = Qwen2Tokenizer().backend_tokenizer
    trainer = trainers.BpeTrainer(
        vocab_size=arch.vocab - len(added),
        special_tokens=[END_OF_TEXT, STOP, *ROLES],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(texts, trainer)
    model = json.loads(bpe.to_str())["model"]
    tokenizer = Qwen2Tokenizer(
        vocab=model["vocab"],
        merges=[tuple(merge) for merge in model["merges"]],
        unk_token=None,
        eos_token=STOP,
        pad_token=END_OF_TEXT,
        extra_special_tokens=list(ROLES),
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )
    # Not special, so that they survive decoding without special tokens.
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in added])
    return tokenizer


def build_model(arch: Architecture, tokenizer: Qwen2Tokenizer, seed: int) -> Qwen2ForCausalLM:
    """Builds the randomly initialised policy (float32); equal seeds give equal weights."""
    config = Qwen2Config(
        vocab_size=arch.vocab,
        hidden_size=arch.hidden,
        intermediate_size=arch.intermediate,
        num_hidden_layers=arch.layers,
        num_attention_heads=arch.heads,
        num_key_value_heads=arch.kv_heads,
        max_position_embeddings=arch.window,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        dtype="float32",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed % 2**63)
        return Qwen2ForCausalLM(config)
