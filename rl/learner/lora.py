"""Low-rank adapters (peft): only they are trained. A generator takes them as they are, or merged weights.

Adapters have the type of the frozen weights: beside bfloat16 ones, float32 adapters would multiply at a
fraction of the speed. Their updates are below bfloat16's resolution, so the engines train float32 masters of
them, as of any bfloat16 weight. Dropout is 0, as the sampler has none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch
from peft import LoraConfig, inject_adapter_in_model
from peft.tuners.lora import LoraLayer
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import PreTrainedModel

ADAPTER = "default"
FILE = "adapter_model.safetensors"
_PREFIX = "base_model.model."  # of peft's files

Gathered = Callable[[Sequence[nn.Parameter]], AbstractContextManager[object]]
"""Makes sharded parameters whole inside its context, on every rank."""


@dataclass(frozen=True, slots=True)
class LoraOptions:
    """Which adapters; meanings and ranges as in `configs.schema.LoraConfig`."""

    r: int
    alpha: float = 64.0
    targets: str | Sequence[str] = "all-linear"


def add_adapters(model: PreTrainedModel, options: LoraOptions, *, seed: int = 0) -> None:
    """Puts adapters into `model` and freezes everything else; what it computes does not change yet.

    Args:
        model: Any causal LM; it stays what it is, with some of its linear layers replaced.
        options: Of the adapters.
        seed: Draws the first half of every adapter; the second starts at 0.

    Raises:
        ValueError: no module of the model has a name that was asked for, or one of them cannot take one.
    """
    targets = options.targets if isinstance(options.targets, str) else list(options.targets)
    config = LoraConfig(
        r=options.r,
        lora_alpha=options.alpha,
        target_modules=targets,
        lora_dropout=0.0,
        bias="none",
        task_type="CAUSAL_LM",
        base_model_name_or_path=model.name_or_path or None,
    )
    training = model.training
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        inject_adapter_in_model(config, model, adapter_name=ADAPTER)
    _check_layers(model)
    for layer in model.modules():
        if isinstance(layer, LoraLayer):
            layer.lora_A.to(layer.base_layer.weight.dtype)
            layer.lora_B.to(layer.base_layer.weight.dtype)
    model.train(training)


def _check_layers(model: PreTrainedModel) -> None:
    """Raises a ValueError where W + B·A is not what a layer computes, or belongs to another layer as well."""
    embedding = model.get_input_embeddings().weight
    for name, module in model.named_modules():
        if not isinstance(module, LoraLayer):
            continue
        if not isinstance(module.base_layer, nn.Linear):
            kind = type(module.base_layer).__name__
            raise ValueError(f"no adapter for {name}: it is of type {kind}, and only linear layers take one")
        if module.base_layer.weight is embedding:
            raise ValueError(
                f"no adapter for {name}: its weights are tied to the embeddings, which would change too"
            )


def has_adapters(model: nn.Module) -> bool:
    """Whether `add_adapters` was called."""
    return any(isinstance(module, LoraLayer) for module in model.modules())


def trained_names(model: nn.Module) -> set[str]:
    """Names of the weights that training changes, as they are handed to a generator.

    All; or with adapters, those of `adapter_weights` and of the weights of `merged_weights` that have one.
    """
    adapted = {name for name, m in model.named_modules() if isinstance(m, LoraLayer)}
    return {f"{name}.weight" for name in adapted} | set(adapter_parameters(model)) or {
        name for name, p in model.named_parameters() if p.requires_grad
    }


def adapter_scaling(model: nn.Module) -> float:
    """What the adapters' output is multiplied by: alpha / r, the same everywhere."""
    (scaling,) = {m.scaling[ADAPTER] for m in model.modules() if isinstance(m, LoraLayer)}
    return scaling


@contextmanager
def adapters_off(model: nn.Module) -> Iterator[None]:
    """Inside, `model` computes what it did before `add_adapters`, to the bit; nothing may train meanwhile."""
    layers = [m for m in model.modules() if isinstance(m, LoraLayer)]
    # peft's `enable_adapters` would also turn `requires_grad` off and on, of which engines keep count.
    for layer in layers:
        layer._disable_adapters = True
    try:
        yield
    finally:
        for layer in layers:
            layer._disable_adapters = False


def base_weights(model: nn.Module, gathered: Gathered | None = None) -> Iterator[tuple[str, torch.Tensor]]:
    """The frozen weights under the model's own names, as if it had no adapters; as `merged_weights`."""
    for name, parameter in model.named_parameters():
        if ".lora_" not in name:
            with nullcontext() if gathered is None else gathered([parameter]):
                weight = parameter.detach() if gathered is None else parameter.detach().clone()
            yield name.replace(".base_layer.", "."), weight


def merged_weights(model: nn.Module, gathered: Gathered | None = None) -> Iterator[tuple[str, torch.Tensor]]:
    """Weights under the model's own names, as if it had no adapters: W + alpha/r · B·A, one at a time.

    The sum is taken in float32 and rounded once. Tied weights come once.

    Args:
        model: With adapters.
        gathered: Makes sharded parameters whole; every rank must take part. Without, weights that have no
            adapter are not copies.
    """
    layers = {id(m.base_layer.weight): m for m in model.modules() if isinstance(m, LoraLayer)}
    for name, parameter in model.named_parameters():
        if ".lora_" in name:
            continue
        layer = layers.get(id(parameter))
        halves = [] if layer is None else [layer.lora_A[ADAPTER].weight, layer.lora_B[ADAPTER].weight]
        whole = nullcontext() if gathered is None else gathered([parameter, *halves])
        with whole, torch.no_grad():
            weight = parameter.detach()
            if layer is not None:
                change = layer.scaling[ADAPTER] * (halves[1].float() @ halves[0].float())
                weight = (weight.float() + change).to(weight.dtype)
            elif gathered is not None:
                weight = weight.clone()
        yield name.replace(".base_layer.", "."), weight  # nothing stays whole while it is used


def adapter_weights(model: nn.Module, gathered: Gathered | None = None) -> Iterator[tuple[str, torch.Tensor]]:
    """Copies of the adapters alone, under the names of peft's files; arguments as of `merged_weights`."""
    for name, parameter in adapter_parameters(model).items():
        with nullcontext() if gathered is None else gathered([parameter]):
            weight = parameter.detach().clone()
        yield name, weight


def adapter_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """The adapters' parameters by their names in peft's files."""
    return {
        _PREFIX + name.replace(f".{ADAPTER}.", "."): parameter
        for name, parameter in model.named_parameters()
        if ".lora_" in name
    }


def save_adapters(model: PreTrainedModel, folder: Path, weights: Mapping[str, torch.Tensor]) -> None:
    """Writes what `peft.PeftModel.from_pretrained` reads.

    Args:
        model: With adapters; says which.
        folder: To write into; made if it is not there.
        weights: From `adapter_weights`.
    """
    folder.mkdir(exist_ok=True)
    config = model.peft_config[ADAPTER]
    config.inference_mode = True  # what peft itself writes
    config.save_pretrained(folder)
    config.inference_mode = False
    save_file({name: weight.contiguous() for name, weight in weights.items()}, folder / FILE)


def load_adapters(folder: Path) -> dict[str, torch.Tensor]:
    """The weights that `save_adapters` wrote."""
    return load_file(folder / FILE)
