"""Faster layers of the learner give the plain layers' log-probabilities and gradients, or are refused."""

import importlib.util
import subprocess
import sys
import types

import pytest
import torch

import rl.learner.fused
from commands.build.learner import replace_layers
from configs.load import load
from configs.text import ConfigError
from rl.learner.fused import LIGER, FusedError, compile_layers, fuse_layers
from tests.conftest import ROOT
from tests.rl.learner.same_learning import assert_same, learnt, random_model


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "make"),
    [("qwen2", {}), ("qwen3", {"lora": True}), ("qwen2", {"lora": True, "checkpointing": True})],
)
def test_compiled_layers_learn_as_plain_ones_and_are_compiled_once(kind, make):
    plain, model = random_model(kind, **make), random_model(kind, **make)
    names = list(model.state_dict())
    compile_layers(model)
    assert list(model.state_dict()) == names
    torch._dynamo.utils.counters.clear()
    made = []
    for rows in ([7, 1, 12], [9], [4, 4, 4, 4, 4], [30, 2]):
        assert_same(learnt(plain, rows), learnt(model, rows))
        made.append(torch._dynamo.utils.counters["stats"]["unique_graphs"])
    assert made[0] > 0 and set(made) == {made[0]}, "no other number of rows or tokens is compiled again"


@pytest.mark.slow
def test_ligers_kernels_learn_as_plain_layers():
    if importlib.util.find_spec("liger_kernel") is None or importlib.util.find_spec("triton") is None:
        pytest.skip("needs requirements-fused.txt and triton")
    done = subprocess.run(
        [sys.executable, "-m", "tests.rl.learner.liger_interpreted"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("same") == 8


def fake_liger(monkeypatch, kind, called):
    """As the real one: changes this model's modules, and the classes of all models to come."""
    modelling = sys.modules[type(random_model(kind)).__module__]

    def apply(**options):
        called.append(options)
        for name in ("RMSNorm", "MLP"):
            setattr(modelling, f"{kind.capitalize()}{name}", "Liger's")

    package = types.ModuleType("liger_kernel.transformers")
    setattr(package, LIGER[kind], apply)
    monkeypatch.setitem(sys.modules, "liger_kernel.transformers", package)
    monkeypatch.setattr(rl.learner.fused.importlib.util, "find_spec", lambda name: package)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    return modelling


@pytest.mark.parametrize("kind", ["qwen2", "qwen3"])
def test_only_the_model_given_is_changed(kind, monkeypatch):
    """A model made later, for the generator or the reference, has the classes it always had."""
    called, model = [], random_model(kind)
    modelling = fake_liger(monkeypatch, kind, called)
    before = dict(vars(modelling))
    fuse_layers(model)
    assert called == [
        {"rope": False, "cross_entropy": False, "fused_linear_cross_entropy": False, "model": model}
    ]
    assert dict(vars(modelling)) == before


def test_what_cannot_be_replaced_is_refused_with_what_to_do(monkeypatch):
    model = random_model("qwen2")
    monkeypatch.setattr(rl.learner.fused.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(FusedError, match=r"not installed: `pip install -r requirements-fused.txt`"):
        fuse_layers(model)
    monkeypatch.undo()
    fake_liger(monkeypatch, "qwen2", [])
    monkeypatch.delenv("TRITON_INTERPRET")
    with pytest.raises(FusedError, match="run on a GPU, and there is none: set model.fused=false"):
        fuse_layers(model)
    model.config.model_type = "llama"
    with pytest.raises(FusedError, match="for qwen2 and qwen3, and this model is llama"):
        fuse_layers(model)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(FusedError, match=r"needs a C\+\+ compiler"):
        compile_layers(model)


def test_options_that_do_not_go_together_are_refused():
    with pytest.raises(ConfigError, match="set one of them"):
        load("alfworld_cpu", ["model.fused=true", "model.compile=true"])
    config = load(
        "alfworld_cpu", ["model.compile=true", "train.engine=deepspeed", "train.zero_stage=3"]
    ).config
    with pytest.raises(ConfigError, match="zero_stage=3: ZeRO-3 brings weights in and out"):
        replace_layers(config, random_model("qwen2"))


def test_nothing_is_replaced_unless_asked_for():
    model = random_model("qwen2")
    replace_layers(load("alfworld_cpu", []).config, model)
    assert all(module._compiled_call_impl is None for module in model.modules())
    assert all("forward" not in vars(module) for module in model.modules())
