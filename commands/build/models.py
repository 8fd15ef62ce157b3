"""Builds model, tokenizer and prompts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from commands.build.terminal import quiet_libraries
from configs.schema import Config
from configs.text import ConfigError
from envs.worlds import world_class

if TYPE_CHECKING:  # torch and transformers take seconds to import
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from agent.prompts.builder import PromptBuilder

ROOT = Path(__file__).resolve().parents[2]


def model_and_tokenizer(
    config: Config, path: Path | None = None
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Loads the policy's weights onto the accelerator if there is one.

    Args:
        config: Names the model.
        path: A checkpoint to load instead of `model.path`.

    Raises:
        ConfigError: The name is no Hugging Face folder and cannot be downloaded.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    quiet_libraries()
    name = _local_folder(str(path or config.model.path))
    try:
        model = AutoModelForCausalLM.from_pretrained(name, dtype=getattr(torch, config.model.dtype))
        tokenizer = AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ConfigError(f"model.path={name} cannot be loaded: {reason}") from error
    return model.to("cuda" if torch.cuda.is_available() else "cpu"), tokenizer


def _local_folder(name: str) -> str:
    """Returns the model's folder if `name` is one, else `name` as the id of a model to download."""
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
    """Returns the builder that turns observations into tokens.

    Raises:
        PromptError: There is no such template, or it has no text for the form.
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
    """Prints which thinking the model uses, if its chat template has its own."""
    if prompts.turns.thinking:
        console.print(f"thinking: {prompts.turns.thinking}", markup=False)


def check_window(option: str, tokens: int, config: Config, model: PreTrainedModel) -> None:
    """Raises a ConfigError if an option asks the model to read more tokens than it can."""
    longest = getattr(model.config, "max_position_embeddings", None)
    if longest is not None and tokens > longest:
        raise ConfigError(
            f"{option}={tokens}, but the model reads at most {longest} tokens ({config.model.path}): lower it"
        )
