"""Shapes of the models that `run.py plan` counts, some of them known by heart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from transformers import AutoConfig, PretrainedConfig, Qwen2Config, Qwen3Config

from commands.build.models import ROOT
from configs.text import ConfigError
from rl.learner.memory import Shape, shape_of

# Widths of the published configurations, for machines that no model hub can be reached from.
_QWEN = {
    "0.5B": dict(hidden_size=896, intermediate_size=4864, num_hidden_layers=24, num_attention_heads=14),
    "1.5B": dict(hidden_size=1536, intermediate_size=8960, num_hidden_layers=28, num_attention_heads=12),
    "3B": dict(hidden_size=2048, intermediate_size=11008, num_hidden_layers=36, num_attention_heads=16),
    "7B": dict(hidden_size=3584, intermediate_size=18944, num_hidden_layers=28, num_attention_heads=28),
    "14B": dict(hidden_size=5120, intermediate_size=13824, num_hidden_layers=48, num_attention_heads=40),
}
_LARGE = {"7B": 4, "14B": 8}  # key-value heads of those whose embeddings are not tied
_QWEN3 = {
    "0.6B": dict(hidden_size=1024, intermediate_size=3072, num_hidden_layers=28, num_attention_heads=16),
    "1.7B": dict(hidden_size=2048, intermediate_size=6144, num_hidden_layers=28, num_attention_heads=16),
    "4B": dict(hidden_size=2560, intermediate_size=9728, num_hidden_layers=36, num_attention_heads=32),
    "8B": dict(hidden_size=4096, intermediate_size=12288, num_hidden_layers=36, num_attention_heads=32),
}
KNOWN: Mapping[str, Mapping[str, int | bool]] = {
    f"Qwen/Qwen2.5-{size}-Instruct": {
        **widths,
        "num_key_value_heads": _LARGE.get(size, 2),
        "vocab_size": 152064 if size in _LARGE else 151936,
        "max_position_embeddings": 32768,
        "tie_word_embeddings": size not in _LARGE,
    }
    for size, widths in _QWEN.items()
} | {
    f"Qwen/Qwen3-{size}": {
        **widths,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 151936,
        "max_position_embeddings": 40960,
        "tie_word_embeddings": size != "8B",
    }
    for size, widths in _QWEN3.items()
}
"""Model id to the arguments of its configuration."""


@dataclass(frozen=True, slots=True)
class Encoder:
    """A scorer's model: parameters, and the widths that its passes depend on."""

    parameters: int
    layers: int
    hidden: int
    intermediate: int


XLM_R_LARGE = Encoder(568_000_000, 24, 1024, 4096)
SCORERS: Mapping[str, Encoder] = {"bge": XLM_R_LARGE, "embed": XLM_R_LARGE}
"""The scorers' default models (bge-reranker-v2-m3; a bi-encoder is at most as large)."""


@cache
def model_shape(path: str) -> Shape:
    """Returns a model's shape, from its configuration file or from `KNOWN`.

    Raises:
        ConfigError: It is neither in a folder, nor in the local cache, nor in `KNOWN`.
    """
    config = _model_config(path)
    try:
        return shape_of(config)
    except ValueError as error:
        raise ConfigError(f"model.path={path}: {error}") from error


def _model_config(path: str) -> PretrainedConfig:
    for folder in (Path(path), ROOT / path):
        if (folder / "config.json").is_file():
            return AutoConfig.from_pretrained(folder)
    if path in KNOWN:
        return known_config(path)
    try:
        return AutoConfig.from_pretrained(path, local_files_only=True)
    except OSError as error:
        raise ConfigError(
            f"model.path={path}: no folder with a config.json, not downloaded before, and not one of the "
            f"models known by heart ({', '.join(KNOWN)}). Download its config.json and name the folder"
        ) from error


def known_config(path: str, **changes: int | bool) -> PretrainedConfig:
    """Returns the configuration of a model of `KNOWN`, with `changes`."""
    made = Qwen3Config if path.startswith("Qwen/Qwen3-") else Qwen2Config
    return made(**KNOWN[path] | changes)
