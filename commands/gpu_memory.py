"""How much accelerator memory a configuration needs, by part and by phase."""

from __future__ import annotations

import math
from dataclasses import dataclass

from commands.build.declared import credit_pipeline
from commands.gpu_models import SCORERS, model_shape
from configs.load import Loaded
from configs.schema import Config
from credit.scorer import embed
from credit.scorer.bge import MAX_LENGTH
from credit.scorer.registry import TOKEN_BUDGET
from rl.learner.memory import (
    Shape,
    State,
    Training,
    activation_bytes,
    encoder_bytes,
    scoring_bytes,
    serving_bytes,
    training_state,
)

GIB = 2**30
CARD = 79.15
"""GiB of an "80 GB" card as PyTorch reports them: 79.1 to 79.3 on A100s and H100s."""

CONTEXT = int(2.5 * GIB)  # assumed: CUDA context, NCCL's buffers, kernels' workspaces
ASLEEP = int(1.5 * GIB)  # assumed: what sleeping vLLM keeps, CUDA graphs above all
FRAGMENTS = 0.05  # assumed: share of the activations lost between blocks


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes on one accelerator in each phase of an update.

    Attributes:
        name: What takes them.
        backward: While gradients are computed.
        step: In the optimiser step.
        generating: While responses are sampled, and compared by the scorer.
        scoring: While the reference, or the learner before the update, scores responses.
        how: What the number depends on.
    """

    name: str
    backward: int
    step: int
    generating: int
    scoring: int
    how: str


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory that each rank needs.

    Attributes:
        parts: What takes it.
        host: Bytes of main memory per rank for what is moved there.
        cache: Bytes for keys and values in the generator; None if it runs elsewhere or its cache grows as
            needed.
        sequences: Full-length rows that fit into `cache` at once; None where `cache` is. With tensor
            parallelism, into those of all ranks that share a generator.
        in_flight: Trajectories in flight per generator.
        budget: Bytes that an accelerator has.
    """

    parts: tuple[Part, ...]
    host: int
    cache: int | None
    sequences: int | None
    in_flight: int
    budget: int

    @property
    def totals(self) -> tuple[int, int, int, int]:
        """Bytes in each phase: gradients, optimiser step, generating, scoring."""
        sums = [(part.backward, part.step, part.generating, part.scoring) for part in self.parts]
        return tuple(map(sum, zip(*sums, strict=True)))

    @property
    def fits(self) -> bool:
        """Whether every phase fits, and the generator has room for one row."""
        return max(self.totals) <= self.budget and (self.sequences is None or self.sequences >= 1)


def tensor_parallel(config: Config) -> int:
    """Ranks that share one generator."""
    return config.generator.tensor_parallel


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


def memory_of(loaded: Loaded, ranks: int, budget: int, columns: frozenset[str] | None = None) -> Memory:
    """Adds up the memory of each rank.

    Each rank has its own generator. It sleeps while the learner trains, unless trajectories are rolled out
    at the same time (`rollout.staleness=1`). The learner keeps weights and optimiser state while generating.

    Args:
        loaded: The configuration.
        ranks: Processes, one per accelerator.
        budget: Bytes that an accelerator has.
        columns: `scored_columns`, where they are known already.

    Raises:
        ConfigError: There is no such model.
    """
    config = loaded.config
    shape, training = model_shape(config.model.path), training_of(config, ranks)
    state, b = training_state(shape, training), training.b
    columns = scored_columns(loaded) if columns is None else columns
    parts = _state_parts(shape, training, state)
    activations = int((1 + FRAGMENTS) * activation_bytes(shape, training))
    read = int((1 + FRAGMENTS) * scoring_bytes(shape, b, training.token_budget))
    parts.append(Part("activations", activations, 0, read if columns else 0, read, _activations(training)))
    reference, away = _reference(config, columns, b * shape.parameters)
    generator, cache, sequences, in_flight = _generator(config, shape, ranks, b, budget)
    copied = 4 if training.r else b if training.stage == 3 else 0
    parts += [
        reference,
        *_scorer(config),
        Part("weights sent", 0, 0, copied * shape.largest, 0, "the largest, gathered or merged"),
        generator,
        Part("context", *[CONTEXT] * 4, "CUDA, NCCL, workspaces: assumed"),
    ]
    shown = tuple(p for p in parts if p.backward or p.step or p.generating or p.scoring)
    return Memory(shown, state.host + away, cache, sequences, in_flight, budget)


def _state_parts(shape: Shape, training: Training, state: State) -> list[Part]:
    """What the learner holds, activations apart; under ZeRO-3 gradients and buffers, made once, stay."""
    zero3 = training.stage == 3
    kept = state.gradients if zero3 else 0
    buckets = state.buckets if zero3 else 0
    how = f"{training.b} bytes each" + (
        f", 1 of {training.ranks} parts" if zero3 and training.ranks > 1 else ""
    )
    moved = "in main memory" if training.offload else _sharded(training, 1)
    return [
        Part("weights", *[state.weights] * 4, how),
        Part("gradients", state.gradients, state.gradients, kept, kept, _sharded(training, 2)),
        Part("optimiser", *[state.optimizer] * 4, moved),
        Part("optimiser's step", 0, state.step, 0, 0, "float32 gradients, flat"),
        Part("DeepSpeed's buffers", state.buckets, *[buckets] * 3, "gradient bucket, gathered weights"),
    ]


def _sharded(training: Training, stage: int) -> str:
    divided = training.ranks > 1 and training.stage is not None and training.stage >= stage
    return f"ZeRO-{training.stage}, 1 of {training.ranks} parts" if divided else "whole"


def _activations(training: Training) -> str:
    return (
        f"{training.token_budget:,} tokens, {'with' if training.checkpointing else 'without'} checkpointing"
    )


def scored_columns(loaded: Loaded) -> frozenset[str]:
    """Token columns of the credit method that take a forward pass of their own, before the update."""
    return credit_pipeline(loaded).token_columns - {"logp_sampled"}


def has_reference(config: Config, columns: frozenset[str]) -> bool:
    """Whether the KL term or a credit stage compares with the starting policy."""
    return config.train.kl_coef > 0 or "logp_ref" in columns


def _reference(config: Config, columns: frozenset[str], weights: int) -> tuple[Part, int]:
    """Returns the reference's part and its bytes of main memory: none where only adapters are trained."""
    if not has_reference(config, columns) or config.model.lora.r:
        return Part("reference", 0, 0, 0, 0, ""), 0
    if config.train.reference == "gpu":
        return Part("reference", *[weights] * 4, "frozen copy, whole on every rank"), 0
    early = weights if "logp_ref" in columns else 0
    return Part("reference", 0, 0, early, weights, "in main memory until it scores"), weights


def _scorer(config: Config) -> list[Part]:
    """The scorer's weights, which stay, and one batch of its pairs, read while the generator is awake."""
    encoder = SCORERS.get(config.scorer.name)
    if encoder is None:
        return []
    options = config.scorer.options
    tokens = embed.TOKEN_BUDGET
    if config.scorer.name == "bge":
        tokens = max(options.get("token_budget", TOKEN_BUDGET), options.get("max_length", MAX_LENGTH))
    batch = int((1 + FRAGMENTS) * encoder_bytes(encoder.hidden, encoder.intermediate, tokens))
    return [
        Part("scorer", *[2 * encoder.parameters] * 4, f"{config.scorer.name}, float16"),
        Part("scorer's batch", 0, 0, batch, 0, f"{tokens:,} tokens of pairs"),
    ]


def _generator(
    config: Config, shape: Shape, ranks: int, b: int, budget: int
) -> tuple[Part, int | None, int | None, int]:
    """Returns the generator's part, its bytes for keys and values, full rows that fit, and rows in flight.

    With tensor parallelism weights, keys and values of a generator are divided by its ranks.
    """
    shared = tensor_parallel(config)
    groups = math.ceil(config.rollout.groups * shared / ranks)
    in_flight = min(config.rollout.max_parallel, groups * config.rollout.group_size)
    if config.generator.backend == "server":
        return Part("generator", 0, 0, 0, 0, "on policy servers"), None, None, in_flight
    weights = b * shape.parameters
    row = config.prompt.window * shape.kv_bytes(b)
    if config.generator.backend == "torch":
        how = f"a copy, {in_flight} full rows"
        part = Part("generator", weights, weights, weights + in_flight * row, weights, how)
        return part, None, None, in_flight
    share = int(config.generator.memory * budget)
    parallel = max(config.rollout.max_parallel, config.eval.max_parallel)
    beside = serving_bytes(shape, b, batched_tokens=config.generator.batched_tokens, parallel=parallel)
    cache_bytes = max(0, share - weights // shared - beside)
    awake = share + ASLEEP
    asleep = awake if config.rollout.staleness else ASLEEP
    how = f"vLLM, share {config.generator.memory:g}"
    how += f", {shared} ranks each" if shared > 1 else ""
    how += ", awake while training" if config.rollout.staleness else ""
    part = Part("generator", asleep, asleep, awake, asleep, how)
    return part, cache_bytes, cache_bytes * shared // row, in_flight
