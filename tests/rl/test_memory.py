"""`rl.learner.memory` against published sizes, real optimisers, and counts of every operation."""

import pytest
import torch
from torch._subclasses import FakeTensorMode
from transformers import AutoConfig, AutoModelForCausalLM, Qwen2Config, Qwen3Config

from bench.ranks import on_ranks
from commands.gpu_models import known_config
from rl.learner import memory
from rl.learner.engine import OptimOptions
from rl.learner.forward import ResponseModel
from rl.learner.lora import LoraOptions, add_adapters
from rl.learner.memory import Training, activation_bytes, shape_of, training_state
from rl.learner.torch_engine import TorchEngine
from tests.rl.peak import Peak
from tests.toy import tiny_model

PUBLISHED = {
    "2.5-0.5B-Instruct": 494_032_768,
    "2.5-1.5B-Instruct": 1_543_714_304,
    "2.5-3B-Instruct": 3_085_938_688,
    "2.5-7B-Instruct": 7_615_616_512,
    "2.5-14B-Instruct": 14_770_033_664,
    "3-0.6B": 596_049_920,
    "3-1.7B": 1_720_574_976,  # the index counts the tied output layer as well: 2,031,739,904
    "3-4B": 4_022_468_096,
    "3-8B": 8_190_735_360,
}
"""Parameters in the model cards' safetensors indices."""

TINY = dict(vocab=1000, hidden=64, layers=4, intermediate=128)
OPTIONS = OptimOptions()


def known(name):
    return shape_of(known_config(f"Qwen/Qwen{name}"))


@pytest.mark.parametrize("size", PUBLISHED)
def test_parameters_are_those_published(size):
    assert known(size).parameters == PUBLISHED[size]


def test_widths_by_hand():
    shape = known("2.5-1.5B-Instruct")
    assert shape.kv_bytes(2) == 2 * 28 * 2 * 128 * 2 == 28_672
    assert (shape.queries, shape.keys, shape.tied, shape.window) == (1536, 256, True, 32768)
    assert shape.largest == 151_936 * 1536
    larger = known("2.5-7B-Instruct")
    assert not larger.tied and larger.kv_bytes(2) == 57_344
    # q, o: 1536 → 1536; k, v: 1536 → 256; gate, up: 1536 → 8960; down: 8960 → 1536
    widths = 2 * (1536 + 1536) + 2 * (1536 + 256) + 3 * (1536 + 8960)
    assert shape.adapters(16) == 28 * 16 * widths
    assert shape.adapters(16, ["q_proj", "v_proj"]) == 28 * 16 * (3072 + 1792)
    assert shape.normed == 0
    thinking = known("3-4B")  # its heads are wider together than the residual stream
    assert (thinking.queries, thinking.keys, thinking.normed) == (4096, 1024, 5120)
    assert thinking.kv_bytes(2) == 2 * 36 * 8 * 128 * 2 and thinking.tied and not known("3-8B").tied


@pytest.mark.parametrize("targets", ["all-linear", ["q_proj", "down_proj"]])
def test_adapters_are_those_that_peft_adds(targets):
    model = tiny_model(**TINY)
    shape = shape_of(model.config)
    assert shape.parameters == sum(p.numel() for p in model.parameters())
    add_adapters(model, LoraOptions(8, targets=targets))
    assert shape.adapters(8, targets) == sum(p.numel() for p in model.parameters() if p.requires_grad)


def test_a_model_of_another_build_is_refused():
    with pytest.raises(ValueError, match="'gpt2' has no intermediate_size"):
        shape_of(AutoConfig.for_model("gpt2"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("r", [0, 8])
def test_the_torch_engines_state(dtype, r):
    model = tiny_model(**TINY).to(dtype)
    shape = shape_of(model.config)
    if r:
        add_adapters(model, LoraOptions(r))
    state = training_state(shape, Training(dtype.itemsize, None, r=r))
    assert state.weights == sum(p.nbytes for p in model.parameters())
    with Peak() as peak:
        engine = TorchEngine(model, OPTIONS)
        masters = peak.live
        trained = shape.adapters(r) if r else shape.parameters
        assert masters == (4 * trained if dtype == torch.bfloat16 else 0)
        logp_T, _ = engine.module(
            torch.zeros(8, dtype=torch.long), [8], torch.arange(4), torch.zeros(4).long(), 1.0
        )
        engine.backward(logp_T.sum(), last=True)
        del logp_T
        assert peak.live - masters == pytest.approx(state.gradients, rel=0.01)
        engine.step(1e-3)
    assert peak.live == pytest.approx(state.optimizer, rel=0.01)


def deepspeed_bytes(stage, dtype, r, offload=False):
    """(before a second step, highest in it, after it) of what DeepSpeed holds beyond the model given."""
    from rl.learner.deepspeed_engine import DeepSpeedEngine

    model = tiny_model(**TINY).to(dtype)
    if r:
        add_adapters(model, LoraOptions(r))
    with Peak() as peak:
        engine = DeepSpeedEngine(model, OPTIONS, zero_stage=stage, offload=offload)
        for _ in range(2):
            ids, zeros = torch.zeros(8, dtype=torch.long), torch.zeros(4, dtype=torch.long)
            logp_T, _ = engine.module(ids, [8], torch.arange(4), zeros, 1.0)
            engine.backward(logp_T.sum(), last=True)
            del logp_T
            before = peak.peak = peak.live
            engine.step(1e-3)
        return before, peak.peak, peak.live


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("stage", [0, 1, 2, 3])
@pytest.mark.parametrize(("dtype", "r"), [(torch.float32, 0), (torch.bfloat16, 0), (torch.bfloat16, 8)])
def test_deepspeeds_state(stage, dtype, r, monkeypatch):
    """On one rank; the model's own storages are replaced by flat ones at stages 1 to 3, kept at 0."""
    pytest.importorskip("deepspeed")
    monkeypatch.setattr(memory, "LIVE", 0)
    shape = shape_of(tiny_model(**TINY).config)
    training = Training(dtype.itemsize, stage, r=r)
    state = training_state(shape, training)
    a = training.trained(shape)
    weights = 0 if stage == 0 else dtype.itemsize * a
    if stage == 3:
        weights = state.weights
    bucket = state.buckets if stage == 3 else 0
    kept = state.gradients if stage == 3 else 0
    before, highest, after = (n - bucket for n in deepspeed_bytes(stage, dtype, r))
    assert before == pytest.approx(weights + state.optimizer + state.gradients, rel=0.03)
    assert after == pytest.approx(weights + state.optimizer + kept, rel=0.03)
    assert highest - before == pytest.approx(state.step, rel=0.03, abs=0.5 * a)


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_offloaded_state_is_in_main_memory():
    """On a CPU both are one: weights, master, moments, and what the step takes, which stays allocated."""
    pytest.importorskip("deepspeed")
    shape = shape_of(tiny_model(**TINY).config)
    state = training_state(shape, Training(2, 2, offload=True))
    assert state.optimizer == state.step == 0 and state.host == (12 + 6) * shape.parameters
    _, _, after = deepspeed_bytes(2, torch.bfloat16, 0, offload=True)
    assert after == pytest.approx(state.host + 2 * shape.parameters, rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("stage", [1, 2, 3])
def test_what_two_ranks_share(stage):
    """At stage 3 all of so small a model stays gathered: DeepSpeed does not part with weights below 1e5."""
    pytest.importorskip("deepspeed")
    state = training_state(shape_of(tiny_model(**TINY).config), Training(2, stage, ranks=2))
    found = on_ranks(2, deepspeed_bytes, stage, torch.bfloat16, 0)
    bucket, kept = (state.buckets, state.gradients) if stage == 3 else (0, 0)
    for _, _, after in found:
        assert after - bucket == pytest.approx(state.weights + state.optimizer + kept, rel=0.1)


def peak_of(config, dtype, training, rows, length):
    """Bytes at the peak of one forward and backward pass in which every token is under the loss."""
    torch.set_default_dtype(dtype)
    try:
        model = AutoModelForCausalLM.from_config(config)
    finally:
        torch.set_default_dtype(torch.float32)
    if training.checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    model.train()
    if training.r:
        add_adapters(model, LoraOptions(training.r))
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.grad = torch.zeros_like(parameter)
    module = ResponseModel(model)
    tokens = rows * length
    with Peak() as peak:
        ids_N = target_T = torch.zeros(tokens, dtype=torch.long)
        logp_T, _ = module(ids_N, [length] * rows, torch.arange(tokens), target_T, 1.0)
        logp_T.sum().backward()
    return peak.peak


SMALL = dict(
    hidden_size=256, intermediate_size=1024, num_attention_heads=4, num_key_value_heads=2, vocab_size=2000
)


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("r", "within"), [(0, 0.10), (16, 0.20)])
@pytest.mark.parametrize("family", [Qwen2Config, Qwen3Config])
def test_activations_of_a_small_model(family, dtype, checkpointing, r, within):
    own = {"head_dim": 64} if family is Qwen3Config else {}
    config = family(**SMALL, **own, num_hidden_layers=4, tie_word_embeddings=True)
    training = Training(dtype.itemsize, None, r=r, checkpointing=checkpointing, token_budget=4 * 512)
    found = peak_of(config, dtype, training, 4, 512)
    assert activation_bytes(shape_of(config), training) == pytest.approx(found, rel=within)


@pytest.mark.parametrize(
    ("name", "layers"), [("2.5-1.5B-Instruct", 28), ("2.5-7B-Instruct", 6), ("3-1.7B", 28), ("3-4B", 6)]
)
@pytest.mark.parametrize("checkpointing", [False, True])
def test_activations_of_the_models_meant(name, layers, checkpointing):
    """At their true widths, by tensors without memory."""
    config = known_config(f"Qwen/Qwen{name}", num_hidden_layers=layers)
    training = Training(2, None, checkpointing=checkpointing, token_budget=8 * 1024)
    shape = shape_of(config)
    with FakeTensorMode(allow_non_fake_inputs=True):
        found = peak_of(config, torch.bfloat16, training, 8, 1024)
    assert activation_bytes(shape, training) == pytest.approx(found, rel=0.10)
