"""From a configuration to the objects it spells. The only place that reads its sections."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from configs.load import Loaded
from configs.schema import Config
from configs.show import Docs
from configs.text import ConfigError, suggest
from configs.worlds import WORLDS
from credit.pipeline import Pipeline
from credit.registry import all_stages
from credit.scorer import make_scorer, scorer_names
from envs.base import Task
from envs.worlds import world_class

if TYPE_CHECKING:  # torch and transformers take seconds to import: `show` does without
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from agent.policy import Policy
    from agent.prompts.builder import PromptBuilder
    from agent.ranks import Ranks
    from agent.rollout.rollout import Environments, OnFailure, RolloutOptions
    from eval.result import EvalResult

ROOT = Path(__file__).resolve().parents[2]


def console() -> Console:
    """Returns standard output, wide enough for a table where it is no terminal."""
    found = Console(highlight=False, soft_wrap=True)
    return found if found.is_terminal else Console(highlight=False, soft_wrap=True, width=120)


def stage_docs(stage: str) -> dict[str, tuple[Any, str]]:
    """Returns {option: (default, meaning)} of a credit stage."""
    return all_stages()[stage].documented()


def world_docs(name: str) -> dict[str, tuple[Any, str]]:
    """Returns {option: (default, meaning)} of a built-in world; nothing of one's own, which is not loaded."""
    return world_class(name).Options.documented() if name in WORLDS else {}


DOCS = Docs(stage_docs, world_docs)
"""What `configs.show` cannot know."""


def check_world(loaded: Loaded) -> None:
    """Checks the world's name and options without opening it.

    Raises:
        ConfigError: There is no such world, or an option does not fit.
    """
    env = loaded.config.env
    try:
        world_class(env.name).read_options(env)
    except ConfigError as error:
        source = loaded.sources.get(str(error).partition(":")[0])  # "env.options.products: got 0, …"
        raise ConfigError(f"{error} ({source})" if source else str(error)) from error


def credit_pipeline(loaded: Loaded) -> Pipeline:
    """Returns the credit method, its options and its scorer's name checked.

    Raises:
        ConfigError: An unknown stage, option or scorer, a value out of range, an impossible order of stages.
    """
    credit, scorer = loaded.config.credit, loaded.config.scorer.name
    if scorer not in scorer_names():
        raise ConfigError(
            f"unknown scorer.name {scorer!r} ({loaded.source('scorer.name')})"
            f"{suggest(scorer, scorer_names())} There are: {', '.join(scorer_names())}"
        )
    try:
        return Pipeline.from_config(credit.stages, credit.name)
    except ValueError as error:
        option = str(error).partition(":")[0].removeprefix("credit.")  # "credit.scpo.theta: got 8.0, …"
        source = loaded.sources.get(f"credit.stages.{option}")
        raise ConfigError(f"{error} ({source})" if source else str(error)) from error


def services(config: Config, pipeline: Pipeline) -> dict[str, Any]:
    """Returns what the credit stages require, by name, continuations apart.

    Raises:
        ConfigError: An unknown option of the scorer, a package it needs is not installed, or a judge is asked
            for but not configured.
    """
    made = _judge(config, pipeline)
    if "pair_scorer" not in pipeline.requires:
        return made
    try:
        return made | {"pair_scorer": make_scorer(config.scorer.name, **config.scorer.options)}
    except (ValueError, ImportError) as error:
        raise ConfigError(
            f"scorer.name={config.scorer.name}: {error}. `python run.py doctor` says more."
        ) from error


def _judge(config: Config, pipeline: Pipeline) -> dict[str, Any]:
    """ProVer's judge, if the method asks for one."""
    asking = [stage for stage in pipeline.stages if getattr(stage, "proposer", "") == "judge"]
    if not asking:
        return {}
    if config.probes.judge_url is None:
        raise ConfigError(
            f"credit.{asking[0].name()}.proposer=judge needs a model to ask: set probes.judge_url and "
            "probes.judge_model, or choose first_divergence or random"
        )
    from rl.probes.prover_judge import ChatJudge

    key = os.environ.get("SIBLING_JUDGE_KEY")
    probes = config.probes
    return {"judge": ChatJudge(probes.judge_url, probes.judge_model, key=key, max_steps=asking[0].max_steps)}


def use_threads(threads: int) -> None:
    """Limits torch's CPU threads (0: leaves them)."""
    import torch

    if threads:
        torch.set_num_threads(threads)


def hush() -> None:
    """Keeps the libraries' own progress bars and warnings out of this project's output."""
    import torch
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    # Saving a model imports DeepSpeed, which warns unless it is told what it would find out.
    os.environ.setdefault("DS_ACCELERATOR", "cuda" if torch.cuda.is_available() else "cpu")


def model_and_tokenizer(
    config: Config, path: Path | None = None
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Loads the policy's weights onto the accelerator if there is one.

    Args:
        config: Names the model.
        path: A checkpoint to load instead of `model.path`.

    Raises:
        ConfigError: It is no Hugging Face folder and cannot be downloaded.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    hush()
    name = _local_folder(str(path or config.model.path))
    try:
        model = AutoModelForCausalLM.from_pretrained(name, dtype=getattr(torch, config.model.dtype))
        tokenizer = AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ConfigError(f"model.path={name} cannot be loaded: {reason}") from error
    return model.to("cuda" if torch.cuda.is_available() else "cpu"), tokenizer


def _local_folder(name: str) -> str:
    """A model's folder, if `name` is one or looks like one; else `name`, an id to download."""
    for path in (Path(name), ROOT / name):
        if path.is_dir():
            return str(path)
    if name.startswith(("agent/assets/", "runs/", ".", "/", "~")) or name.count("/") > 1:
        raise ConfigError(
            f"model.path={name}: no such folder. `make warmstart` makes ALFWorld's embedded policy, with "
            'ARGS="--experiment webshop_cpu" the shop\'s.'
        )
    return name


def prompt_builder(config: Config, tokenizer: PreTrainedTokenizerBase) -> PromptBuilder:
    """Returns what turns observations into tokens.

    Raises:
        PromptError: No such template, or it lacks the form.
        TemplateError: The tokenizer's chat template cannot be used as `prompt.thinking` and
            `prompt.template_args` say.
    """
    from agent.prompts.builder import PromptBuilder, load_template
    from agent.prompts.parse import parser
    from agent.prompts.turns import TurnFormat

    prompt = config.prompt
    return PromptBuilder(
        turns=TurnFormat(tokenizer, prompt.thinking, prompt.template_args),
        form=prompt.form,
        template=load_template(prompt.template),
        history=prompt.history,
        window=prompt.window,
        max_response_tokens=prompt.max_response_tokens,
        parser=parser(prompt.parse, world_class(config.env.name).papers_tail),
    )


def tell_thinking(prompts: PromptBuilder, console: Console) -> None:
    """Says whose thoughts the model writes, if its chat template has any of its own."""
    if prompts.turns.thinking:
        console.print(f"thinking: {prompts.turns.thinking}", markup=False)


def check_window(option: str, tokens: int, config: Config, model: PreTrainedModel) -> None:
    """Raises a ConfigError if an option asks the model to read more tokens than it can."""
    longest = getattr(model.config, "max_position_embeddings", None)
    if longest is not None and tokens > longest:
        raise ConfigError(
            f"{option}={tokens}, but the model reads at most {longest} tokens ({config.model.path}): lower it"
        )


def evaluation(
    config: Config,
    policy: Policy,
    prompts: PromptBuilder,
    tasks: Sequence[Task],
    environments: Environments,
    on_progress: Callable[[int, int], None] | None = None,
    ranks: Ranks | None = None,
) -> EvalResult:
    """Evaluates a policy as the configuration says; every command's evaluation is this one."""
    from agent.policy import Sampling
    from eval.evaluate import evaluate

    return evaluate(
        policy,
        environments,
        tasks,
        prompts,
        sampling=Sampling(config.eval.temperature),
        seed=config.seed,
        max_parallel=config.eval.max_parallel,
        samples=config.eval.samples,
        options=rollout_options(config),
        on_progress=on_progress,
        ranks=ranks,
    )


def rollout_options(config: Config, on_failure: OnFailure = "stop") -> RolloutOptions:
    """Returns how rollouts are run; `rollout.mode=auto` looks at the machine."""
    import torch

    from agent.rollout.rollout import RolloutOptions

    mode = config.rollout.mode
    if mode == "auto":
        mode = "free" if torch.cuda.is_available() else "deterministic"
    return RolloutOptions(mode, on_failure, config.rollout.time_limit_s, config.rollout.watchdog_s)


def plain(config: Config) -> Mapping[str, Any]:
    """Returns the configuration as nested plain values."""
    return config.model_dump(mode="json")
