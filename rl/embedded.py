"""The embedded policy's architecture: a small Qwen2 and a BPE tokenizer of the engine's own text.

Both are ordinary Hugging Face objects: `AutoModelForCausalLM` and `AutoTokenizer` load the folder.
Byte-level BPE can spell any text; frequent words of the engine are one token each.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

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
    """Size of the embedded policy."""

    vocab: int = 1024
    hidden: int = 128
    layers: int = 4
    heads: int = 4
    kv_heads: int = 2
    intermediate: int = 384
    window: int = 2048


def train_tokenizer(texts: Iterable[str], vocab: int) -> PreTrainedTokenizerFast:
    """Trains a byte-level BPE on `texts` (deterministic) with the chat and tag tokens built in."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        special_tokens=[END_OF_TEXT, STOP, *ROLES],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    # Tags are ordinary added tokens, so that they survive `skip_special_tokens` decoding.
    trainer.vocab_size = vocab - len(TAGS)
    bpe.train_from_iterator(texts, trainer)
    bpe.add_tokens(list(TAGS))
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        eos_token=STOP,
        pad_token=END_OF_TEXT,
        extra_special_tokens=list(ROLES),
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


def build_model(arch: Architecture, tokenizer: PreTrainedTokenizerFast, seed: int) -> Qwen2ForCausalLM:
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
