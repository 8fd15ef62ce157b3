"""`run.py serve-policy`: a policy over HTTP, for runs with `generator.backend=server`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from agent.server.app import ConversationLimits
from agent.server.policy_server import Served, serve
from agent.wire.messages import TOKEN_VARIABLE, describe
from commands.build.models import model_and_tokenizer, prompt_builder
from commands.build.policy import make_policy
from commands.build.terminal import use_threads
from configs.load import load
from configs.text import ConfigError
from serving.address import Address
from serving.secret import read_token


def run(
    experiment: str,
    overrides: Sequence[str],
    *,
    address: Address,
    limits: ConversationLimits,
    token_file: Path | None,
    drain_seconds: float,
) -> None:
    """Serves an experiment's policy until a signal; it samples once a run has sent it weights.

    Args:
        experiment: Names the model, the window, and in `generator.backend` what generates.
        overrides: `key=value`.

    Raises:
        ConfigError: The experiment cannot be read, its model not be loaded, or its backend is `server`.
        ServingError, PolicyError: See `agent.server.policy_server.serve`.
    """
    config = load(experiment, overrides).config
    if config.generator.backend == "server":
        raise ConfigError(
            "generator.backend=server is what the run says; a server has to generate itself: give this "
            "command generator.backend=torch or generator.backend=vllm"
        )
    if config.generator.tensor_parallel > 1:
        raise ConfigError(
            f"generator.tensor_parallel={config.generator.tensor_parallel}: a policy server is one process "
            "with one card; set it to 1. Models past one card generate in the run's own processes "
            "(generator.backend=vllm)"
        )
    token = read_token(token_file, TOKEN_VARIABLE)
    use_threads(config.threads)
    model, tokenizer = model_and_tokenizer(config)
    prompts = prompt_builder(config, tokenizer)
    policy = make_policy(config, model, prompts)
    served = Served(
        policy,
        describe(model, prompts.turns.stop_ids, config.prompt.window),
        device=model.device,
        name=f"the policy of {config.name} ({config.generator.backend})",
    )
    del model  # the policy has weights of its own
    serve(
        served,
        address=address,
        limits=limits,
        token=token,
        folder=Path(config.generator.folder),
        drain_seconds=drain_seconds,
    )
