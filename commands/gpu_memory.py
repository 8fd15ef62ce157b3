"""How much accelerator memory a configuration needs, by part and by phase."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from transformers import AutoConfig, PretrainedConfig, Qwen2Config, Qwen3Config

from commands.build.declared import credit_pipeline
from commands.build.models import ROOT
from configs.load import Loaded
from configs.schema import Config
from configs.text import ConfigError
from rl.learner.memory import Shape, Training, activation_bytes, serving_bytes, shape_of, training_state

GIB = 2**30

# Widths of the published configurations, for machines that no model hub can be reached from.
_QWEN = {
    "0.5B": dict(hidden_size=896, intermediate_size=4864, num_hidden_layers=24, num_attention_heads=14),
    "1.5B": dict(hidden_size=1536, intermediate_size=8960, num_hidden_layers=28, num_attention_heads=12),
    "3B": dict(hidden_size=2048, intermediate_size=11008, num_hidden_layers=36, num_attention_heads=16),
    "7B": dict(hidden_size=3584, intermediate_size=18944, num_hidden_layers=28, num_attention_heads=28),
}
_QWEN3 = {
    "0.6B": dict(hidden_size=1024, intermediate_size=3072, num_hidden_layers=28, num_attention_heads=16),
    "1.7B": dict(hidden_size=2048, intermediate_size=6144, num_hidden_layers=28, num_attention_heads=16),
    "4B": dict(hidden_size=2560, intermediate_size=9728, num_hidden_layers=36, num_attention_heads=32),
    "8B": dict(hidden_size=4096, intermediate_size=12288, num_hidden_layers=36, num_attention_heads=32),
}
KNOWN: Mapping[str, Mapping[str, int | bool]] = {
    f"Qwen/Qwen2.5-{size}-Instruct": {
        **widths,
        "num_key_value_heads": 4 if size == "7B" else 2,
        "vocab_size": 152064 if size == "7B" else 151936,
        "max_position_embeddings": 32768,
        "tie_word_embeddings": size != "7B",
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

SCORERS = {"bge": 568_000_000, "embed": 568_000_000}
"""Parameters of the scorers' default models (bge-reranker-v2-m3; a bi-encoder is at most as large)."""

CONTEXT = int(2.5 * GIB)  # assumed: CUDA context, NCCL's buffers, kernels' workspaces
ASLEEP = int(1.5 * GIB)  # assumed: what sleeping vLLM keeps, CUDA graphs above all
FRAGMENTS = 0.05  # assumed: share of the activations lost between blocks


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes on one accelerator: while gradients are computed, in the optimiser step, and while generating."""

    name: str
    backward: int
    step: int
    generating: int
    how: str


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory that each rank needs.

    Attributes:
        parts: What takes it.
        host: Bytes of main memory per rank for offloaded state.
        cache: Bytes for keys and values in the generator; None if it runs elsewhere or its cache grows as
            needed.
        sequences: Full-length rows that fit into `cache` at once; None where `cache` is.
        in_flight: Trajectories in flight per rank.
        budget: Bytes that an accelerator has.
    """

    parts: tuple[Part, ...]
    host: int
    cache: int | None
    sequences: int | None
    in_flight: int
    budget: int

    @property
    def totals(self) -> tuple[int, int, int]:
        """Bytes in each phase: gradients, optimiser step, generating."""
        sums = [(part.backward, part.step, part.generating) for part in self.parts]
        return tuple(map(sum, zip(*sums, strict=True)))

    @property
    def fits(self) -> bool:
        """Whether every phase fits, and the generator has room for one row."""
        return max(self.totals) <= self.budget and (self.sequences is None or self.sequences >= 1)


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


def training_of(config: Config, ranks: int) -> Training:
    """Returns what the memory formulas need to know about the training."""
    train, lora = config.train, config.model.lora
    return Training(
        b=2 if config.model.dtype == "bfloat16" else 4,
        stage=train.zero_stage if train.engine == "deepspeed" else None,
        ranks=ranks,
        offload=train.offload,
        r=lora.r,
        targets=lora.targets if isinstance(lora.targets, str) else tuple(lora.targets),
        checkpointing=config.model.gradient_checkpointing,
        token_budget=train.token_budget,
    )


def memory_of(loaded: Loaded, ranks: int, budget: int) -> Memory:
    """Adds up the memory of each rank.

    Each rank has its own generator. It sleeps while the learner trains, unless trajectories are rolled out
    at the same time (`rollout.staleness=1`). The learner keeps weights and optimiser state while generating.

    Args:
        loaded: The configuration.
        ranks: Processes, one per accelerator.
        budget: Bytes that an accelerator has.

    Raises:
        ConfigError: There is no such model.
    """
    config = loaded.config
    shape, training = model_shape(config.model.path), training_of(config, ranks)
    state, b = training_state(shape, training), training.b
    activations = int((1 + FRAGMENTS) * activation_bytes(shape, training))
    zero3 = training.stage == 3
    kept = state.gradients if zero3 else 0  # flat, made once
    buckets = state.buckets if zero3 else 0
    in_flight = min(
        config.rollout.max_parallel, math.ceil(config.rollout.groups / ranks) * config.rollout.group_size
    )
    copied = 4 if training.r else b if zero3 else 0
    parts = [
        Part(
            "weights",
            *[state.weights] * 3,
            f"{b} bytes each" + (f", 1 of {ranks} parts" if zero3 and ranks > 1 else ""),
        ),
        Part("gradients", state.gradients, state.gradients, kept, _sharded(training, 2)),
        Part(
            "optimiser",
            *[state.optimizer] * 3,
            "in main memory" if training.offload else _sharded(training, 1),
        ),
        Part("optimiser's step", 0, state.step, 0, "float32 gradients, flat"),
        Part("DeepSpeed's buffers", state.buckets, buckets, buckets, "gradient bucket, gathered weights"),
        Part("activations", activations, 0, 0, _activations(training)),
        Part("reference", *[_reference(loaded, shape, b)] * 3, "frozen copy, whole on every rank"),
        Part("scorer", *[2 * SCORERS.get(config.scorer.name, 0)] * 3, f"{config.scorer.name}, float16"),
        Part("weights sent", 0, 0, copied * shape.largest, "the largest, gathered or merged"),
    ]
    generator, cache, sequences = _generator(config, shape, b, in_flight, budget)
    parts += [generator, Part("context", *[CONTEXT] * 3, "CUDA, NCCL, workspaces: assumed")]
    shown = tuple(part for part in parts if part.backward or part.step or part.generating)
    return Memory(shown, state.host, cache, sequences, in_flight, budget)


def _sharded(training: Training, stage: int) -> str:
    divided = training.ranks > 1 and training.stage is not None and training.stage >= stage
    return f"ZeRO-{training.stage}, 1 of {training.ranks} parts" if divided else "whole"


def _activations(training: Training) -> str:
    return (
        f"{training.token_budget:,} tokens, {'with' if training.checkpointing else 'without'} checkpointing"
    )


def _reference(loaded: Loaded, shape: Shape, b: int) -> int:
    needed = loaded.config.train.kl_coef > 0 or "logp_ref" in credit_pipeline(loaded).token_columns
    return b * shape.parameters if needed else 0


def _generator(
    config: Config, shape: Shape, b: int, in_flight: int, budget: int
) -> tuple[Part, int | None, int | None]:
    """Returns the generator's part, its bytes for keys and values, and how many full rows fit into them."""
    window = config.prompt.window
    if config.generator.backend == "server":
        return Part("generator", 0, 0, 0, "on policy servers"), None, None
    row = window * shape.kv_bytes(b)
    if config.generator.backend == "torch":
        copied = b * shape.parameters
        how = f"a copy, {in_flight} full rows"
        return Part("generator", copied, copied, copied + in_flight * row, how), None, None
    share = int(config.generator.memory * budget)
    parallel = max(config.rollout.max_parallel, config.eval.max_parallel)
    beside = serving_bytes(shape, b, batched_tokens=config.generator.batched_tokens, parallel=parallel)
    cache_bytes = max(0, share - b * shape.parameters - beside)
    awake = share + ASLEEP
    asleep = awake if config.rollout.staleness else ASLEEP
    how = f"vLLM, share {config.generator.memory:g}" + (
        ", awake while training" if config.rollout.staleness else ""
    )
    return Part("generator", asleep, asleep, awake, how), cache_bytes, cache_bytes // row
