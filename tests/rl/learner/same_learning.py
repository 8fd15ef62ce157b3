"""Whether a model with other layers scores and learns as the plain one does."""

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM

from rl.learner.forward import ResponseModel
from rl.learner.lora import LoraOptions, add_adapters

VOCAB = 50


def random_model(kind, *, lora=False, checkpointing=False):
    """A peaked random model, the same for equal arguments; adapters that already change something."""
    config, model = {"qwen2": (Qwen2Config, Qwen2ForCausalLM), "qwen3": (Qwen3Config, Qwen3ForCausalLM)}[kind]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        made = model(
            config(
                vocab_size=VOCAB,
                hidden_size=32,
                intermediate_size=48,
                num_hidden_layers=2,
                num_attention_heads=4,
                num_key_value_heads=2,
                head_dim=8,
                initializer_range=0.3,
            )
        )
        for name, weight in made.named_parameters():
            if "norm" in name:  # all ones would hide a norm's own weights
                torch.nn.init.uniform_(weight, 0.5, 1.5)
        if checkpointing:
            made.gradient_checkpointing_enable({"use_reentrant": False})
        made.train()
        if lora:
            add_adapters(made, LoraOptions(4), seed=1)
            for name, weight in made.named_parameters():
                if "lora_B" in name:
                    torch.nn.init.normal_(weight, std=0.1)
    return made


def learnt(model, rows):
    """Log-probabilities without and with gradients, and the gradients of a weighted sum."""
    module = ResponseModel(model)
    ids_N = torch.randint(VOCAB, (sum(rows),), generator=torch.Generator().manual_seed(sum(rows)))
    position_T = torch.arange(0, len(ids_N) - 1, 2)
    arguments = (ids_N, rows, position_T, ids_N[position_T + 1], 0.8)
    with torch.no_grad():
        scored_T, _ = module(*arguments)
    logp_T, _ = module(*arguments)
    model.zero_grad()
    (logp_T * torch.linspace(-1.0, 1.0, len(logp_T))).sum().backward()
    gradients = {
        name: weight.grad.clone() for name, weight in model.named_parameters() if weight.requires_grad
    }
    return {"scored": scored_T, "logp": logp_T.detach(), **gradients}


def assert_same(plain, changed):
    """Within float32 rounding of the largest value of each tensor."""
    assert plain.keys() == changed.keys()
    for name, tensor in plain.items():
        gap = (tensor - changed[name]).abs().max() / tensor.abs().max()
        assert gap < 2e-5, f"{name}: {gap:.1e}"
