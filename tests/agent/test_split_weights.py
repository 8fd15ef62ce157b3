"""Weights that lie in parts on several ranks are read back whole, to the bit."""

import pytest
import torch

from agent.policies.split_weights import split_weights
from tests.agent.threads import on_ranks

LAYER = "model.layers.0."
STACKS = {"qkv_proj": ["q_proj", "k_proj", "v_proj"], "gate_up_proj": ["gate_proj", "up_proj"]}


def whole_model(vocabulary):
    shapes = {
        "model.embed_tokens.weight": [vocabulary, 8],
        f"{LAYER}self_attn.q_proj.weight": [8, 8],
        f"{LAYER}self_attn.q_proj.bias": [8],
        f"{LAYER}self_attn.k_proj.weight": [4, 8],
        f"{LAYER}self_attn.k_proj.bias": [4],
        f"{LAYER}self_attn.v_proj.weight": [4, 8],
        f"{LAYER}self_attn.v_proj.bias": [4],
        f"{LAYER}self_attn.o_proj.weight": [8, 8],
        f"{LAYER}mlp.gate_proj.weight": [12, 8],
        f"{LAYER}mlp.up_proj.weight": [12, 8],
        f"{LAYER}mlp.down_proj.weight": [8, 12],
        f"{LAYER}input_layernorm.weight": [8],
        "lm_head.weight": [vocabulary, 8],
    }
    generator = torch.Generator().manual_seed(0)
    return {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}


def part_of(model, rank, ranks, padded):
    """As tensor parallelism deals a model out: rows of what goes in, columns of what comes out."""

    def rows(name):
        return model[name].chunk(ranks)[rank]

    def vocabulary(name):
        missing = padded - len(model[name])
        return torch.cat([model[name], torch.zeros(missing, 8)]).chunk(ranks)[rank]

    attention, mlp = f"{LAYER}self_attn.", f"{LAYER}mlp."
    return {
        "model.embed_tokens.weight": vocabulary("model.embed_tokens.weight"),
        f"{attention}qkv_proj.weight": torch.cat([rows(f"{attention}{p}_proj.weight") for p in "qkv"]),
        f"{attention}qkv_proj.bias": torch.cat([rows(f"{attention}{p}_proj.bias") for p in "qkv"]),
        f"{attention}o_proj.weight": model[f"{attention}o_proj.weight"].chunk(ranks, 1)[rank],
        f"{mlp}gate_up_proj.weight": torch.cat([rows(f"{mlp}{p}_proj.weight") for p in ("gate", "up")]),
        f"{mlp}down_proj.weight": model[f"{mlp}down_proj.weight"].chunk(ranks, 1)[rank],
        f"{LAYER}input_layernorm.weight": model[f"{LAYER}input_layernorm.weight"],
        "lm_head.weight": vocabulary("lm_head.weight"),
    }


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize(("vocabulary", "padded"), [(10, 16), (16, 16), (8, 16), (3, 16)])
def test_parts_are_put_together_to_the_bit_on_every_rank(ranks, vocabulary, padded):
    """Of 8 words padded to 16, two ranks have one all words and the other none: the sizes do not show it."""
    model = whole_model(vocabulary)
    shapes = {name: weight.shape for name, weight in model.items()}

    def work(team):
        own = part_of(model, team.rank, ranks, padded)
        return list(
            split_weights(own, STACKS, shapes, ranks, lambda t, axis: torch.cat(team.gather(t), axis))
        )

    for found in on_ranks(ranks, work):
        assert [name for name, _ in found] == list(model)
        assert all(torch.equal(weight, model[name]) for name, weight in found)
