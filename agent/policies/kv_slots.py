"""Key-value cache in slots, and attention over ragged batches of them.

A forward pass takes the new tokens of any number of rows, laid end to end as one sequence [1, T], so
no linear layer ever sees padding. The only place where rows must be told apart is attention: there the
rows are covered by *spans* of neighbouring slots, and each span is one batched matrix product against a
view of the cache. Nothing is gathered or copied but the new keys and values.

The attention function below plugs into a Hugging Face model by its attention interface; it gets its
`Batch` as a keyword argument of the model's forward.

Axes: S slots, C capacity in tokens, T new tokens of all rows, H query heads, J key-value heads, G = H/J,
D head dimension, c slots of a span, n new tokens of its busiest row, L tokens of its
longest row, g = G·n queries of a key-value head.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, PretrainedConfig

ATTENTION = "sibling_slots"

# Costs in units of one score (query × key): a span's fixed overhead, and the most scores of one span.
# Measured on a CPU with head dimension 32; they trade time and memory, never results.
_SPAN_OVERHEAD = 500
_SPAN_LIMIT = 1 << 18


@dataclass(frozen=True, slots=True)
class _Span:
    """Slots `lo:hi`, attended over together.

    Attributes:
        lo: First slot.
        hi: One past the last slot.
        first: Index of its first query among the T new tokens.
        bias_cnL: Added to the scores [c, n, L]: -inf for keys after a query's own position, else 0.
        token_cn: Index of each query among the new tokens [c, n]; any where a row has fewer than n.
        real_cn: Which of them are queries [c, n]; None if all are (then they are neighbours).
    """

    lo: int
    hi: int
    first: int
    bias_cnL: torch.Tensor
    token_cn: torch.Tensor
    real_cn: torch.Tensor | None


@dataclass(frozen=True, slots=True)
class Batch:
    """The new tokens of one forward pass: where they go and what they attend to.

    Attributes:
        cache: The cache they belong to.
        slot_T: Slot of each token [T].
        position_T: Position of each token in its row [T].
        last_R: Index among the tokens of each row's last one [R].
        spans: Cover of the rows, in the order of the tokens.
    """

    cache: KVSlots
    slot_T: torch.Tensor
    position_T: torch.Tensor
    last_R: torch.Tensor
    spans: list[_Span]


class KVSlots:
    """Preallocated keys and values, one slot per row; grows in both directions on demand.

    Args:
        config: Of the model (layers, key-value heads, head dimension).
        dtype: Of keys and values.
        device: Where they live.
        max_length: Longest row (tokens).
    """

    def __init__(
        self, config: PretrainedConfig, dtype: torch.dtype, device: torch.device, max_length: int
    ) -> None:
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        self._max_length, self._device = max_length, device
        # Zeros, not empty: what masked positions hold is multiplied by 0, and 0 × NaN is NaN.
        empty = [torch.zeros(0, heads, 0, dim, dtype=dtype, device=device)] * config.num_hidden_layers
        self.keys_SJCD, self.values_SJCD = list(empty), list(empty)

    def reserve(self, slots: int, length: int) -> None:
        """Makes room for `slots` rows of `length` tokens (at least doubling what grows)."""
        old_slots, heads, old_length, dim = self.keys_SJCD[0].shape
        if slots <= old_slots and length <= old_length:
            return
        if slots > old_slots:
            slots = max(slots, 2 * old_slots)
        if length > old_length:
            length = min(max(length, 2 * old_length), self._max_length)
        shape = (max(slots, old_slots), heads, max(length, old_length), dim)
        for tensors in (self.keys_SJCD, self.values_SJCD):
            for i, old in enumerate(tensors):
                tensors[i] = torch.zeros(shape, dtype=old.dtype, device=old.device)
                tensors[i][:old_slots, :, :old_length] = old

    def free(self) -> None:
        """Gives all memory back; what was cached is gone."""
        for tensors in (self.keys_SJCD, self.values_SJCD):
            tensors[:] = [old.new_zeros((0, old.shape[1], 0, old.shape[3])) for old in tensors]

    def copy(self, source: int, targets: Sequence[int], length: int) -> None:
        """Copies the first `length` tokens of slot `source` to the slots `targets`."""
        for tensor in (*self.keys_SJCD, *self.values_SJCD):
            for target in targets:
                tensor[target, :, :length] = tensor[source, :, :length]

    def batch(self, slots: Sequence[int], starts: Sequence[int], counts: Sequence[int]) -> Batch:
        """Lays out a forward pass of `counts[r]` new tokens after position `starts[r]` of `slots[r]`.

        Args:
            slots: Each once; runs of increasing ones are attended over together.
            starts: Tokens cached per row.
            counts: New tokens per row, at least 1.
        """
        slot_R, start_R, count_R = (np.asarray(a, dtype=np.int64) for a in (slots, starts, counts))
        end_R = np.cumsum(count_R)
        offset_R = end_R - count_R
        position_T = np.arange(end_R[-1]) + np.repeat(start_R - offset_R, count_R)
        self.reserve(int(slot_R.max()) + 1, int((start_R + count_R).max()))
        spans = [
            self._span(slot_R[i:j], start_R[i:j], count_R[i:j], offset_R[i:j])
            for i, j in _cover(slot_R.tolist(), (start_R + count_R).tolist(), count_R.tolist())
        ]
        slot_T = np.repeat(slot_R, count_R)
        return Batch(self, self._put(slot_T), self._put(position_T), self._put(end_R - 1), spans)

    def _span(
        self, slot_r: np.ndarray, start_r: np.ndarray, count_r: np.ndarray, offset_r: np.ndarray
    ) -> _Span:
        lo, hi, longest = int(slot_r[0]), int(slot_r[-1]) + 1, int(count_r.max())
        step_n = np.arange(longest)
        real_cn = np.zeros((hi - lo, longest), dtype=bool)
        position_cn = np.zeros((hi - lo, longest), dtype=np.int64)
        token_cn = np.zeros((hi - lo, longest), dtype=np.int64)
        real_rn = step_n < count_r[:, None]
        real_cn[slot_r - lo] = real_rn
        position_cn[slot_r - lo] = np.where(real_rn, start_r[:, None] + step_n, 0)
        token_cn[slot_r - lo] = np.where(real_rn, offset_r[:, None] + step_n, 0)
        key_L = torch.arange(int((start_r + count_r).max()), device=self._device)
        hidden_cnL = key_L > self._put(position_cn)[:, :, None]
        bias_cnL = torch.zeros(hidden_cnL.shape, dtype=self.keys_SJCD[0].dtype, device=self._device)
        return _Span(
            lo=lo,
            hi=hi,
            first=int(offset_r[0]),
            bias_cnL=bias_cnL.masked_fill_(hidden_cnL, -torch.inf),
            token_cn=self._put(token_cn),
            real_cn=None if real_cn.all() else self._put(real_cn),
        )

    def _put(self, array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(array).to(self._device)


def _cover(slots: list[int], lengths: list[int], counts: list[int]) -> list[tuple[int, int]]:
    """Cuts rows into runs [i, j) that become spans.

    A run takes the next row as long as the padding this adds (shorter rows, idle slots between) costs
    less than a span of its own.
    """
    runs, first, longest, most = [], 0, lengths[0], counts[0]
    for r in range(1, len(slots)):
        wider = (slots[r] + 1 - slots[first]) * max(longest, lengths[r]) * max(most, counts[r])
        apart = (slots[r - 1] + 1 - slots[first]) * longest * most + lengths[r] * counts[r] + _SPAN_OVERHEAD
        if slots[r] < slots[r - 1] or wider > min(apart, _SPAN_LIMIT):
            runs.append((first, r))
            first, longest, most = r, lengths[r], counts[r]
        else:
            longest, most = max(longest, lengths[r]), max(most, counts[r])
    return [*runs, (first, len(slots))]


def attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: None,
    scaling: float,
    slots: Batch,
    sliding_window: int | None = None,
    softcap: float | None = None,
    **_: object,
) -> tuple[torch.Tensor, None]:
    """Stores the new keys and values and attends causally within each row.

    Args:
        module: The attention layer; its `layer_idx` picks the cache's layer.
        query: New queries [1, H, T, D].
        key: New keys [1, J, T, D].
        value: New values [1, J, T, D].
        attention_mask: Unused; the model makes none for this attention.
        scaling: Factor of the scores.
        slots: The batch.
        sliding_window: Not supported.
        softcap: Not supported.

    Returns:
        Attention output [1, T, H, D] and None (no weights).
    """
    if sliding_window is not None or softcap is not None:
        raise NotImplementedError(f"{type(module).__name__}: no sliding windows or soft caps here")
    keys_SJCD = slots.cache.keys_SJCD[module.layer_idx]
    values_SJCD = slots.cache.values_SJCD[module.layer_idx]
    keys_SJCD[slots.slot_T, :, slots.position_T] = key[0].transpose(0, 1)
    values_SJCD[slots.slot_T, :, slots.position_T] = value[0].transpose(0, 1)
    query_THD = query[0].transpose(0, 1)
    parts = [_attend_span(span, query_THD, keys_SJCD, values_SJCD, scaling) for span in slots.spans]
    return torch.cat(parts)[None], None


def _attend_span(
    span: _Span,
    query_THD: torch.Tensor,
    keys_SJCD: torch.Tensor,
    values_SJCD: torch.Tensor,
    scaling: float,
) -> torch.Tensor:
    """Returns the output of a span's real queries [t, H, D], in the order of the tokens."""
    _, heads, dim = query_THD.shape
    c, n, length = span.bias_cnL.shape
    keys_cJLD = keys_SJCD[span.lo : span.hi, :, :length]
    values_cJLD = values_SJCD[span.lo : span.hi, :, :length]
    kv_heads = keys_cJLD.shape[1]
    if span.real_cn is None:
        query_cnHD = query_THD[span.first : span.first + c * n]
    else:
        query_cnHD = query_THD[span.token_cn]
    query_cJgnD = query_cnHD.view(c, n, kv_heads, -1, dim).permute(0, 2, 3, 1, 4)
    query_cJgD = query_cJgnD.reshape(c, kv_heads, -1, dim)
    bias_cgL = span.bias_cnL[:, None].expand(-1, heads // kv_heads, -1, -1).reshape(c, -1, length)
    # The fused kernel reads keys and values once and writes no scores: on a CPU, where reading them is what a
    # token costs, half the time of two matrix products around a softmax.
    out_cJgD = scaled_dot_product_attention(
        query_cJgD, keys_cJLD, values_cJLD, attn_mask=bias_cgL[:, None], scale=scaling
    )
    out_cJgnD = out_cJgD.view(c, kv_heads, -1, n, dim)
    out_cnHD = out_cJgnD.permute(0, 3, 1, 2, 4).reshape(c, n, heads, dim)
    return out_cnHD.flatten(0, 1) if span.real_cn is None else out_cnHD[span.real_cn]


AttentionInterface.register(ATTENTION, attend)
