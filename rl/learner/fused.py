"""Faster layers of the learner's model, on request: Liger's kernels, or what torch.compile makes of them.

Both replace norms and feed-forward layers by ones that read and write their activations once. Attention,
the output layer and the model's names stay, so weights, adapters and checkpoints are what they were.
Generator and reference keep their own layers.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import shutil
from collections.abc import Iterator
from unittest import mock

from transformers import PreTrainedModel

from configs.errors import UserError

LIGER = {"qwen2": "apply_liger_kernel_to_qwen2", "qwen3": "apply_liger_kernel_to_qwen3"}
"""Kind of model → Liger's function for it."""


class FusedError(UserError, RuntimeError):
    """The layers cannot be replaced here; the message says what to do."""


def fuse_layers(model: PreTrainedModel) -> None:
    """Has a model's norms and feed-forward layers computed by Liger's kernels, in place.

    Of Liger's changes only those are made that belong to this object: no rotary embedding, which Liger
    replaces for every model of the process, and no loss, which the learner has of its own.

    Args:
        model: Qwen2 or Qwen3, on an accelerator, with or without adapters.

    Raises:
        FusedError: Another kind of model, Liger is not installed, or there is no accelerator.
    """
    kind = model.config.model_type
    if kind not in LIGER:
        kinds = " and ".join(LIGER)
        raise FusedError(f"model.fused: for {kinds}, and this model is {kind}: set model.fused=false")
    if importlib.util.find_spec("liger_kernel") is None:
        raise FusedError(
            "model.fused needs Liger's kernels, which are not installed: `pip install -r "
            "requirements-fused.txt` into this environment, or set model.fused=false"
        )
    if model.device.type == "cpu" and os.environ.get("TRITON_INTERPRET") != "1":
        raise FusedError("model.fused: the kernels run on a GPU, and there is none: set model.fused=false")
    modelling = importlib.import_module(type(model).__module__)
    apply = getattr(importlib.import_module("liger_kernel.transformers"), LIGER[kind])
    # It also replaces the classes, so that models made later would be changed as well; those are put back.
    with mock.patch.multiple(modelling, **{name: getattr(modelling, name) for name in _classes(modelling)}):
        apply(rope=False, cross_entropy=False, fused_linear_cross_entropy=False, model=model)


def _classes(modelling: object) -> Iterator[str]:
    return (name for name in vars(modelling) if name.endswith(("RMSNorm", "MLP")))


def compile_layers(model: PreTrainedModel) -> None:
    """Has torch.compile make a model's norms and feed-forward layers, in place, when they are first called.

    Attention is left out: it is computed row by row, and would be compiled again for every number of rows.
    What is compiled takes any number of tokens, so it is done once for training and once for scoring.

    Args:
        model: A model of decoder layers, with or without adapters.

    Raises:
        FusedError: There is no compiler, or the model has no decoder layers.
    """
    if not any(shutil.which(name) for name in (os.environ.get("CXX"), "g++", "clang++") if name):
        raise FusedError(
            "model.compile needs a C++ compiler (g++, clang++ or what CXX names), and none is found: install "
            "one, or set model.compile=false"
        )
    layers = getattr(model.base_model, "layers", None)
    if layers is None:
        raise FusedError(
            f"model.compile: no decoder layers in {type(model).__name__}: set model.compile=false"
        )
    for layer in layers:
        for part in layer.children():
            if not type(part).__name__.endswith("Attention"):
                part.compile(dynamic=True)
