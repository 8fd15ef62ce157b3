"""Builds what trains: the processes, the learner, and the check of weights sent to the policy."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable

import numpy as np
from transformers import PreTrainedModel

from agent.ranks import ALONE, Ranks
from configs.schema import Config
from configs.seeds import derive
from configs.text import ConfigError
from credit.pipeline import Pipeline
from rl.contract import Contract
from rl.learner.engine import Engine, OptimOptions
from rl.learner.learner import BatchOptions, Learner
from rl.learner.loss import LossOptions
from rl.learner.reference import FrozenCopy, OffloadedCopy, Reference, WithoutAdapters
from rl.learner.schedule import LearningRate

PROBE_TOKENS = 48
"""Length of the contract's prompt: a few blocks of a prefix cache."""

TOLERANCE = {"float32": 1e-3, "bfloat16": 0.5}
"""Type of the weights → largest difference of log-probabilities that the contract allows, in nats."""


def join(config: Config) -> Ranks:
    """Joins the run's processes, if there are several. Must be called before the model is loaded."""
    if config.train.engine == "torch" and int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return ALONE
    from rl.learner.processes import Channel
    from rl.learner.processes import join as join_processes

    join_processes(config.train.timeout_s)
    return Channel(config.train.timeout_s)


def contract(config: Config, model: PreTrainedModel) -> Contract | None:
    """Returns the check made after every transfer of weights.

    None with the torch back end, which copies tensors into its own model, where they are read back anyway.
    """
    if config.generator.backend == "torch":
        return None
    draws = np.random.default_rng(derive(config.seed, "contract"))
    probe = draws.integers(0, model.config.vocab_size, PROBE_TOKENS).tolist()
    tolerance = config.generator.tolerance or TOLERANCE[config.model.dtype]
    states = config.generator.backend != "server"  # two servers need not compute the same bits
    return Contract(probe, config.rollout.temperature, tolerance, states)


def starting_policy(
    config: Config, model: PreTrainedModel, pipeline: Pipeline
) -> Callable[[Engine], Reference] | None:
    """Returns what makes the reference of an engine, if the KL term or a credit stage compares with one.

    To be called while `model` is whole and as it was loaded: all weights are copied here, unless only
    adapters are trained.
    """
    if config.train.kl_coef == 0 and "logp_ref" not in pipeline.token_columns:
        return None
    if config.model.lora.r:
        return WithoutAdapters
    kind = OffloadedCopy if config.train.reference == "cpu" else FrozenCopy
    copied = kind(copy.deepcopy(model))
    return lambda engine: copied


def make_learner(
    config: Config, model: PreTrainedModel, reference: Callable[[Engine], Reference] | None
) -> Learner:
    """Returns the learner of `model`, which it may shard; `reference` is from `starting_policy`."""
    if config.model.gradient_checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
        model.train()  # checkpointing is off in evaluation mode
    lora = config.model.lora
    if lora.r:
        from rl.learner.lora import LoraOptions, add_adapters

        add_adapters(model, LoraOptions(lora.r, lora.alpha, lora.targets), seed=derive(config.seed, "lora"))
    replace_layers(config, model)
    train = config.train
    engine = _engine(config, model)
    return Learner(
        engine,
        loss=_loss_options(config),
        batches=BatchOptions(train.epochs, train.minibatches, train.minibatch_rows, train.token_budget),
        lr=LearningRate(train.lr, train.lr_schedule, train.lr_warmup, train.updates, train.lr_min_ratio),
        temperature=config.rollout.temperature,
        seed=config.seed,
        reference=None if reference is None else reference(engine),
    )


def replace_layers(config: Config, model: PreTrainedModel) -> None:
    """Gives the learner's model the faster layers that `model.fused` or `model.compile` asks for."""
    if config.model.compile and config.train.engine == "deepspeed" and config.train.zero_stage == 3:
        raise ConfigError(
            "model.compile with train.zero_stage=3: ZeRO-3 brings weights in and out around every layer, and "
            "compiled layers would not see it: set a lower stage, model.fused=true, or model.compile=false"
        )
    from rl.learner.fused import compile_layers, fuse_layers

    if config.model.fused:
        fuse_layers(model)
    if config.model.compile:
        compile_layers(model)


def _loss_options(config: Config) -> LossOptions:
    train = config.train
    return LossOptions(
        kind=train.loss,
        clip_low=train.clip_low,
        clip_high=train.clip_high,
        dual_clip=train.dual_clip,
        aggregation=train.aggregation,
        kl_coef=train.kl_coef,
        kl_kind=train.kl_kind,
        mismatch=train.mismatch,
        mismatch_cap=train.mismatch_cap,
        entropy_coef=train.entropy_coef,
        norm_length=config.prompt.max_response_tokens,
    )


def _engine(config: Config, model: PreTrainedModel) -> Engine:
    train = config.train
    options = OptimOptions(betas=train.betas, weight_decay=train.weight_decay, grad_clip=train.grad_clip)
    if train.engine == "deepspeed":
        from rl.learner.deepspeed_engine import DeepSpeedEngine

        return DeepSpeedEngine(
            model,
            options,
            zero_stage=train.zero_stage,
            offload=train.offload,
            timeout_s=train.timeout_s,
        )
    from rl.learner.torch_engine import TorchEngine

    return TorchEngine(model, options, timeout_s=train.timeout_s)
