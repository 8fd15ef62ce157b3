"""Adapters: peft's own forward pass, merge and files are the truth."""

import copy

import pytest
import torch
from peft import PeftModel
from torch import nn
from transformers import AutoModelForCausalLM

from rl.checkpoint import CheckpointError, Checkpoints, TrainState
from rl.learner.engine import OptimOptions
from rl.learner.learner import BatchOptions, Learner
from rl.learner.lora import LoraOptions, adapter_weights, add_adapters, merged_weights, save_adapters
from rl.learner.loss import LossOptions
from rl.learner.schedule import LearningRate
from rl.learner.torch_engine import TorchEngine
from tests.rl.helpers import VOCAB, random_groups, score_with
from tests.toy import tiny_model, toy_tokenizer

OPTIONS = LoraOptions(r=4, alpha=12.0)


def adapted(dtype=torch.float32, options=OPTIONS, trained=True, seed=0):
    """A model with adapters whose second halves are no longer 0."""
    model = tiny_model(VOCAB, std=0.3).to(dtype)
    add_adapters(model, options, seed=seed)
    if trained:
        torch.manual_seed(3)
        for name, parameter in model.named_parameters():
            if ".lora_B." in name:
                nn.init.normal_(parameter, std=0.2)
    return model


def learner_of(model):
    return Learner(
        TorchEngine(model, OptimOptions(grad_clip=0.5)),
        loss=LossOptions(),
        batches=BatchOptions(minibatches=2, token_budget=200),
        lr=LearningRate(1e-2),
        temperature=1.0,
        seed=0,
    )


@pytest.fixture(scope="module")
def batch():
    groups = random_groups(groups=3, size=4)
    rows = score_with(tiny_model(VOCAB, std=0.3), groups)
    generator = torch.Generator().manual_seed(1)
    return rows, torch.randn(1 + max(r.spans[-1][2] for r in rows), generator=generator).numpy()


def logits(model):
    with torch.no_grad():
        return model(torch.arange(20)[None]).logits.float()


def test_new_adapters_change_nothing_and_are_all_that_trains():
    plain, model = tiny_model(VOCAB, std=0.3), adapted(trained=False)
    assert type(model) is type(plain)
    assert torch.equal(logits(model), logits(plain))
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    linear = [name for name, m in plain.named_modules() if isinstance(m, nn.Linear) and name != "lm_head"]
    assert trained == {f"{name}.lora_{half}.default.weight" for name in linear for half in "AB"}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_merged_weights_are_pefts(tmp_path, dtype):
    model = adapted(dtype)
    assert all(p.dtype == dtype for p in model.parameters() if p.requires_grad)
    save_adapters(model, tmp_path / "adapter", dict(adapter_weights(model)))
    base = tiny_model(VOCAB, std=0.3).to(dtype)
    expected = PeftModel.from_pretrained(base, tmp_path / "adapter").merge_and_unload().state_dict()
    plain = tiny_model(VOCAB, std=0.3).to(dtype)
    merged = dict(merged_weights(model))
    assert list(merged) == [name for name, _ in plain.named_parameters()]
    tolerance = {"rtol": 0.0, "atol": 1e-6} if dtype == torch.float32 else {"rtol": 2**-7, "atol": 1e-3}
    for name, weight in merged.items():
        torch.testing.assert_close(weight, expected[name], **tolerance)
    changed = {name for name, weight in merged.items() if not torch.equal(weight, plain.state_dict()[name])}
    assert changed == {name for name in merged if "_proj.weight" in name}
    plain.load_state_dict(merged, strict=False)
    if dtype == torch.float32:
        torch.testing.assert_close(logits(plain), logits(model), rtol=0.0, atol=1e-4)


def test_the_draw_is_the_seeds():
    torch.manual_seed(1)
    first = dict(adapter_weights(adapted(trained=False)))
    before = torch.get_rng_state()
    second = dict(adapter_weights(adapted(trained=False)))
    assert torch.equal(before, torch.get_rng_state())
    other = dict(adapter_weights(adapted(trained=False, seed=1)))
    assert all(torch.equal(weight, second[name]) for name, weight in first.items())
    assert not any(torch.equal(weight, other[name]) for name, weight in first.items() if "lora_A" in name)


def test_only_named_modules_get_adapters():
    model = adapted(options=LoraOptions(r=2, alpha=4.0, targets=("q_proj", "v_proj")))
    assert {name.split(".")[-3] for name in dict(adapter_weights(model))} == {"q_proj", "v_proj"}


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("no_such_proj", "no_such_proj"),
        ("lm_head", "tied to the embeddings"),
        ("embed_tokens", "only linear"),
    ],
)
def test_what_cannot_take_an_adapter_is_refused(target, message):
    with pytest.raises(ValueError, match=message):
        adapted(options=LoraOptions(r=2, targets=[target]))


def test_an_update_moves_the_adapters_only(batch):
    model = adapted(trained=False)
    frozen = {name: p.clone() for name, p in model.named_parameters() if not p.requires_grad}
    learner = learner_of(model)
    before = {name: weight.clone() for name, weight in learner.named_weights()}
    learner.update(*batch, update=1)
    assert all(torch.equal(p, frozen[name]) for name, p in model.named_parameters() if name in frozen)
    moved = {name for name, weight in learner.named_weights() if not torch.equal(weight, before[name])}
    assert moved == {name for name in before if "_proj.weight" in name}


def test_gradient_checkpointing_changes_nothing(batch):
    """The first layer's input needs no gradient: the adapters in it must get theirs all the same."""
    results = []
    for checkpointing in (False, True):
        model = adapted()
        if checkpointing:
            model.gradient_checkpointing_enable()
            model.train()
        learner = learner_of(model)
        learner.update(*batch, update=1)
        results.append(dict(learner.engine.adapter_weights()))
    start = dict(adapter_weights(adapted()))
    for name, weight in results[0].items():
        torch.testing.assert_close(results[1][name], weight, rtol=0.0, atol=1e-6)
        assert not torch.equal(weight, start[name]), name


def test_a_checkpoint_is_a_model_an_adapter_and_a_place_to_go_on(batch, tmp_path):
    learner = learner_of(adapted(trained=False))
    learner.update(*batch, update=1)
    checkpoints = Checkpoints(tmp_path, keep=1, tokenizer=toy_tokenizer(), config={})
    path = checkpoints.save(learner, TrainState(update=1))
    whole = AutoModelForCausalLM.from_pretrained(path)
    small = PeftModel.from_pretrained(tiny_model(VOCAB, std=0.3), path / "adapter")
    for model in (whole, small):
        torch.testing.assert_close(logits(model), logits(learner.engine.model), rtol=0.0, atol=1e-4)
    again = learner_of(adapted(trained=False, seed=5))
    checkpoints.restore(path, again)
    for one in (learner, again):
        one.update(*batch, update=2)
    got = dict(again.engine.adapter_weights())
    assert all(torch.equal(weight, got[name]) for name, weight in learner.engine.adapter_weights())


def test_another_base_model_is_noticed(batch, tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=1, tokenizer=toy_tokenizer(), config={})
    path = checkpoints.save(learner_of(adapted()), TrainState(update=1))
    model = adapted()
    with torch.no_grad():
        model.model.layers[1].mlp.up_proj.base_layer.weight += 1e-3
    with pytest.raises(CheckpointError, match=r"layers.1.mlp.up_proj.weight is not what it was"):
        checkpoints.restore(path, learner_of(model))


def test_a_copy_of_an_adapted_model_is_adapted_too():
    """The reference model of the KL term is a deep copy."""
    model = adapted()
    assert torch.equal(logits(copy.deepcopy(model)), logits(model))
