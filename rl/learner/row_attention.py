"""Attention within rows that lie end to end: no padding, in linear layers or in attention.

A micro-batch is one sequence of all its rows. Only attention must tell them apart, so it is computed row by
row, by PyTorch's fused kernels; a row is hundreds to thousands of tokens, so a call for each costs nothing
beside it.

Axes: N tokens of all rows, H query heads, J key-value heads, D head dimension.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, PretrainedConfig, PreTrainedModel

ROWS = "sibling_rows"


def takes_rows(config: PretrainedConfig) -> bool:
    """Whether nothing but plain attention looks at other tokens: no recurrent layer and no sliding window,
    which would look across the rows' ends.
    """
    text = config.get_text_config()
    kinds = set(getattr(text, "layer_types", None) or ["full_attention"])
    hybrid = any(getattr(text, name, None) for name in ("linear_num_value_heads", "mamba_d_state", "ssm_cfg"))
    return kinds == {"full_attention"} and not hybrid


def attend_within_rows(model: PreTrainedModel) -> bool:
    """Gives a model this attention; returns whether it took it. Others are to be given padded rows."""
    if not takes_rows(model.config):
        return False
    model.set_attn_implementation(ROWS)
    return model.config._attn_implementation == ROWS


def attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    rows: Sequence[int] | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    **_: object,
) -> tuple[torch.Tensor, None]:
    """Attends causally within each row.

    Args:
        module: The attention layer.
        query: [1, H, N, D]; without `rows` [B, H, N, D].
        key: [1, J, N, D].
        value: [1, J, N, D].
        attention_mask: Must be None; the model makes none for this attention.
        scaling: Factor of the scores.
        rows: Tokens of each row, Σ = N; None: every sequence of the batch is one row.
        sliding_window: Not supported.
        softcap: Not supported.

    Returns:
        Attention output [1, N, H, D] and None (no weights).
    """
    if attention_mask is not None or sliding_window is not None or softcap is not None:
        raise NotImplementedError(f"{type(module).__name__}: no masks, sliding windows or soft caps here")
    sizes = [query.shape[2]] if rows is None else list(rows)
    parts = zip(query.split(sizes, 2), key.split(sizes, 2), value.split(sizes, 2), strict=True)
    done = [
        scaled_dot_product_attention(q, k, v, is_causal=True, scale=scaling, enable_gqa=True)
        for q, k, v in parts
    ]
    return torch.cat(done, 2).transpose(1, 2), None


AttentionInterface.register(ROWS, attend)
