"""Bytes that training and generation take, from a model's shape alone; no weights are needed.

Every formula says where it comes from: the ZeRO paper, DeepSpeed's source at the pinned version, or counts of
what PyTorch keeps for the backward pass. `tests/rl/test_memory.py` holds them against real optimisers and
real models, operation by operation. Ψ is the number of parameters, A that of the trained ones (A = Ψ without
adapters), N the number of ranks, b the bytes of a weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn
from transformers import AutoModelForCausalLM, PretrainedConfig

from rl.learner.forward import MAX_LOGITS

BUCKET = 500_000_000
"""Elements of DeepSpeed's gradient bucket (`reduce_bucket_size`), allocated whole."""

LIVE = 1_000_000_000
"""Most gathered parameters at once under ZeRO-3 (`stage3_max_live_parameters`)."""

SUBGROUP = 1_000_000_000
"""Most parameters of one rank that ZeRO-3 steps at once (`sub_group_size`)."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What the formulas need of a causal LM.

    Attributes:
        parameters: Ψ, tied weights counted once.
        layers: Transformer blocks.
        hidden: D, width of the residual stream.
        intermediate: F, width of the gated MLP.
        queries: H·d, width of all query heads together.
        keys: J·d, width of all key-value heads together.
        vocabulary: V, rows of the embeddings.
        tied: Whether input and output embeddings are one.
        normed: Width of the query and key heads that are normalised, 0 where they are not (Qwen3: Q + J·d).
        linear: (name, inputs, outputs) of every linear layer but the output layer.
        window: Longest row the model reads, None if it does not say.
    """

    parameters: int
    layers: int
    hidden: int
    intermediate: int
    queries: int
    keys: int
    vocabulary: int
    tied: bool
    normed: int
    linear: tuple[tuple[str, int, int], ...]
    window: int | None

    def adapters(self, r: int, targets: str | Sequence[str] = "all-linear") -> int:
        """Parameters of low-rank adapters: r·(inputs + outputs) of every layer that gets one.

        Args:
            r: Rank.
            targets: As `configs.schema.LoraConfig.targets`.
        """
        chosen = None if targets == "all-linear" else [targets] if isinstance(targets, str) else list(targets)
        return sum(
            r * (inputs + outputs)
            for name, inputs, outputs in self.linear
            if chosen is None or name.rpartition(".")[2] in chosen
        )

    def kv_bytes(self, b: int) -> int:
        """Keys and values of one token in all layers: 2 · layers · J·d · b."""
        return 2 * self.layers * self.keys * b

    @property
    def largest(self) -> int:
        """Parameters of the largest weight, as far as embeddings and MLP go."""
        return max(self.vocabulary, self.intermediate) * self.hidden


def shape_of(config: PretrainedConfig) -> Shape:
    """Builds the model without memory and counts.

    Args:
        config: Of a decoder with gated MLPs (Llama, Qwen2 and their kin).

    Raises:
        ValueError: the configuration lacks a width the formulas need.
    """
    lacking = [
        key for key in ("num_hidden_layers", "intermediate_size", "hidden_size") if not hasattr(config, key)
    ]
    if lacking:
        raise ValueError(
            f"a model of type {config.model_type!r} has no {', '.join(lacking)}: not planned for"
        )
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    heads = config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // heads
    keys = (getattr(config, "num_key_value_heads", None) or heads) * width
    normed = any(name.endswith("q_norm") for name, _ in model.named_modules())
    output = model.get_output_embeddings()
    linear = [
        (name, module.in_features, module.out_features)
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and module is not output
    ]
    return Shape(
        parameters=sum(p.numel() for p in model.parameters()),
        layers=config.num_hidden_layers,
        hidden=config.hidden_size,
        intermediate=config.intermediate_size,
        queries=heads * width,
        keys=keys,
        vocabulary=config.vocab_size,
        tied=output.weight is model.get_input_embeddings().weight,
        normed=heads * width + keys if normed else 0,
        linear=tuple(linear),
        window=getattr(config, "max_position_embeddings", None),
    )


@dataclass(frozen=True, slots=True)
class Training:
    """How a model is trained; meanings as in `configs.schema`.

    Attributes:
        b: Bytes of a weight: 4 (float32) or 2 (bfloat16).
        stage: ZeRO stage; None for the engine `torch`.
        ranks: N.
        offload: Optimiser state in main memory.
        r: Rank of the adapters, 0 without.
        targets: What gets one.
        checkpointing: Gradient checkpointing.
        token_budget: Most tokens per forward pass.
    """

    b: int
    stage: int | None
    ranks: int = 1
    offload: bool = False
    r: int = 0
    targets: str | tuple[str, ...] = "all-linear"
    checkpointing: bool = False
    token_budget: int = 16384

    def trained(self, shape: Shape) -> int:
        """A."""
        return shape.adapters(self.r, self.targets) if self.r else shape.parameters


@dataclass(frozen=True, slots=True)
class State:
    """Bytes per rank holds for training, activations apart.

    Attributes:
        weights: All the time.
        gradients: From the first backward pass to the step.
        optimizer: All the time.
        buckets: DeepSpeed's buffers, while gradients are made.
        step: Beyond these, during the optimiser step.
        host: In main memory.
    """

    weights: int
    gradients: int
    optimizer: int
    buckets: int
    step: int
    host: int


def training_state(shape: Shape, training: Training) -> State:
    """Weights, gradients and AdamW's state of one rank.

        engine torch, ZeRO-0    every rank holds all (n = 1); else n = N:
        weights                 b Ψ       (b Ψ / n at stage 3), frozen ones and adapters included
        gradients               g A       (g A / n at stages 2, 3),  g = 4 for the engine `torch` (summed in
                                float32), else b
        optimiser               4 A / n master + 8 A / n moments; without a master where there is no ZeRO and
                                what is trained is float32
        step                    the gradients once more, flat, and in float32 (stage 3: of a sub-group)
        offload                 optimiser and step in main memory

    Sources: Rajbhandari et al. 2020, "ZeRO", arXiv 1910.02054, §3.1 and §5 (2Ψ + 2Ψ + KΨ with K = 12, and
    what each stage divides). Departures, from DeepSpeed's source and measured: at stages 1 to 3 it keeps a
    master copy of float32 weights as well; the step makes flat float32 copies of this rank's gradients; the
    bucket of gradients is allocated whole, whatever the model's size, from stage 1 on.
    """
    psi, a = shape.parameters, training.trained(shape)
    g = training.b
    frozen = psi if training.r else 0
    base = training.b * (frozen + a)
    master = 4 * a if g == 2 else 0
    if training.stage is None:
        return State(base, 4 * a, master + 8 * a, 0, 0, 0)
    if training.stage == 0:
        return State(base, g * a, master + 8 * a, 0, master, 0)
    n = training.ranks
    stepped = min(a // n, SUBGROUP) if training.stage == 3 else a // n
    optimizer, step = 12 * a // n, (g + (4 if g == 2 else 0)) * stepped
    weights = base // n if training.stage == 3 else base
    gradients = g * a // n if training.stage >= 2 else g * a
    buckets = g * BUCKET
    if training.stage == 3:
        buckets += training.b * min(LIVE, psi)
    if training.offload:
        return State(weights, gradients, 0, buckets, 0, optimizer + step)
    return State(weights, gradients, optimizer, buckets, step, 0)


def activation_bytes(shape: Shape, training: Training) -> int:
    """Peak of what one forward and backward pass over `token_budget` tokens holds beyond the state.

        kept a token and layer   b (4 F + 5 Q) + (8 + 4 b) D         Q = H·d; where queries and keys are
                                 normalised (Qwen3) also (4 + b) (Q + J·d); with adapters also 7 b r
        with checkpointing       b D a token and layer, and one layer as above
        layer phase              kept + 2 b F a token + b D F + b V D if tied
        head phase               kept + 8 D a token + 20 bytes a logit, b V D more for gradients of the head
        peak                     the larger of the two

    Logits are made in blocks of `rl.learner.forward.MAX_LOGITS`, so their number is min(tokens · V,
    MAX_LOGITS).

    Sources: the bookkeeping of Korthikanti et al. 2022, arXiv 2205.05198, eq. 1 to 3 (activations by layer),
    for a gated MLP, RMSNorm computed in float32, and attention that keeps no scores (their term 5 a s / h is
    absent). The constants are this code's: counts of PyTorch's own operations agree within 10 % (20 % with
    adapters). An upper bound: all tokens of the batch are taken to be under the loss.
    """
    tokens, b, d, f = training.token_budget, training.b, shape.hidden, shape.intermediate
    kept = b * (4 * f + 5 * shape.queries) + (8 + 4 * b) * d + (4 + b) * shape.normed
    kept += 7 * b * training.r
    whole = kept if training.checkpointing else 0
    kept = shape.layers * (b * d if training.checkpointing else kept)
    weight = 0 if training.r else b * d * f
    embedding = 0 if training.r else b * shape.vocabulary * d
    layer = tokens * (kept + whole + 2 * b * f) + weight + (embedding if shape.tied else 0)
    every = tokens * shape.vocabulary
    logits = 20 * min(every, MAX_LOGITS)
    if every > MAX_LOGITS:
        logits += embedding  # summed over blocks
    else:
        logits = max(logits, embedding + 2 * every)
    return max(layer, tokens * (kept + 8 * d) + logits)


def scoring_bytes(shape: Shape, b: int, tokens: int) -> int:
    """Peak of a forward pass over `tokens` that keeps nothing, weights apart: b (3 F + 2 D) a token, 20 bytes
    a logit. An upper bound."""
    return tokens * b * (3 * shape.intermediate + 2 * shape.hidden) + 20 * min(
        tokens * shape.vocabulary, MAX_LOGITS
    )


def encoder_bytes(hidden: int, intermediate: int, tokens: int, b: int = 2) -> int:
    """Peak of an encoder's forward pass over `tokens`, weights apart: two streams, two of its MLP."""
    return tokens * b * 2 * (hidden + intermediate)


def serving_bytes(shape: Shape, b: int, *, batched_tokens: int, parallel: int) -> int:
    """What vLLM takes beside weights and cache: one round's activations and logits.

    Assumed, not measured: b (3 F + 4 D) a token of a round, 12 bytes a logit (float32 logits, their
    log-probabilities and a copy), 1 GiB of workspace.
    """
    round_ = batched_tokens * b * (3 * shape.intermediate + 4 * shape.hidden)
    return round_ + 12 * parallel * shape.vocabulary + 2**30
