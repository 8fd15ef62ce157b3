"""Reads weights back from a model that lies in parts on several ranks, a share of every layer on each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import torch

from agent.policies.stacked_weights import EMBEDDING, HEAD, held_weights

Joined = Callable[[torch.Tensor, int], torch.Tensor]
"""Puts the ranks' tensors together along an axis; all ranks take part."""


def split_weights(
    parameters: Mapping[str, torch.Tensor],
    stacks: Mapping[str, Sequence[str]],
    shapes: Mapping[str, Sequence[int]],
    ranks: int,
    joined: Joined,
) -> Iterator[tuple[str, torch.Tensor]]:
    """Yields whole weights under their Hugging Face names; every rank must read all of them.

    Which axis a weight is split along shows in the size of its part. Stacked weights are split part by part,
    along their rows, and the vocabulary is padded and split along its rows even where the sizes agree.

    Args:
        parameters: This rank's parts, as in `held_weights`.
        stacks: As there.
        shapes: Whole ones, as there.
        ranks: That the model lies on.
        joined: Puts parts together.

    Yields:
        Copies where a weight was split, else views.

    Raises:
        PolicyError: as `held_weights`.
    """
    stacked = {name for name in shapes if name not in parameters}
    parts = {
        name: [rows // ranks, *rest] if name in stacked else list(parameters[name].shape)
        for name, (rows, *rest) in shapes.items()
    }
    for name, part in held_weights(parameters, stacks, parts):
        whole = shapes[name]
        by_rows = name in stacked or name in (EMBEDDING, HEAD)
        pairs = enumerate(zip(part.shape, whole, strict=True))
        axes = [0] if by_rows else [axis for axis, (size, of) in pairs if size != of]
        yield name, joined(part.contiguous(), axes[0])[: whole[0]] if axes else part
