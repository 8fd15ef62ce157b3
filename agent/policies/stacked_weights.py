"""Reads weights back from a model that stacks some of them, as vLLM's do (`qkv_proj`, `gate_up_proj`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch

from agent.policy import PolicyError

EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"


def held_weights(
    parameters: Mapping[str, torch.Tensor],
    stacks: Mapping[str, Sequence[str]],
    shapes: Mapping[str, Sequence[int]],
) -> Iterator[tuple[str, torch.Tensor]]:
    """Yields each weight as the model computes with it, under its Hugging Face name.

    Args:
        parameters: Of the model, shared ones under all of their names.
        stacks: Name of a stacked module → the modules in it, row under row in this order.
        shapes: Of all weights under their Hugging Face names, tied ones once.

    Yields:
        Views; rows that only pad (of the vocabulary) are left out. A head that should be tied to the
        embedding but has memory of its own comes under the embedding's name, beside it.

    Raises:
        PolicyError: The model has no parameter for a weight.
    """
    whole_of = {part: whole for whole, parts in stacks.items() for part in parts}
    for name, (rows, *_) in shapes.items():
        module, _, kind = name.rpartition(".")
        prefix, _, part = module.rpartition(".")
        place, first = name, 0
        if name not in parameters and part in whole_of:
            whole = whole_of[part]
            place = f"{prefix}.{whole}.{kind}"
            before = stacks[whole][: list(stacks[whole]).index(part)]
            first = sum(shapes[f"{prefix}.{other}.{kind}"][0] for other in before)
        if place not in parameters:
            raise PolicyError(f"held_weights: the generator has no parameter {place} for {name}")
        yield name, parameters[place][first : first + rows]
    head = parameters.get(HEAD)
    if head is not None and HEAD not in shapes and head is not parameters.get(EMBEDDING):
        yield EMBEDDING, head[: shapes[EMBEDDING][0]]
