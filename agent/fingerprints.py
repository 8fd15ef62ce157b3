"""Whether a generator holds the weights it was given: read back and compared to the bit.

A check of what it samples cannot tell old weights from new ones where an update moves a log-probability by
less than rounding does: in bfloat16, most updates. Bits can be told apart always.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import torch

Named = tuple[str, torch.Tensor]

_CHUNK = 2**24  # elements looked at together: 128 MiB as int64
_STEP = 0x9E3779B97F4A7C15 - 2**64  # odd, as int64: places get factors without a pattern
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def fingerprint(tensor: torch.Tensor) -> int:
    """Σ bits(i) · factor(i) modulo 2⁶⁴ over a tensor's elements, on the device where it is.

    The factors are odd, so two tensors that differ in one element never have the same; made for accidents,
    not against forgers. Shape and type do not count.
    """
    bits = tensor.detach().contiguous().reshape(-1)
    bits = bits.view(_BITS[bits.element_size()])
    total = torch.zeros((), dtype=torch.int64, device=bits.device)
    for first in range(0, len(bits), _CHUNK):
        part = bits[first : first + _CHUNK].to(torch.int64)
        places = torch.arange(first, first + len(part), device=bits.device)
        total += (part * (places * _STEP | 1)).sum()
    return int(total) % 2**64


def not_held(wrong: Sequence[str]) -> str:
    """Says which weights a generator does not hold, as `Fingerprints.differences` found."""
    more = f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""
    return (
        f"after a transfer of weights the generator does not hold {', '.join(wrong[:3])}{more}: read back, "
        "their bits are not those it was given, so it would sample from other weights than the learner's"
    )


class Fingerprints:
    """Of the weights of one transfer, as the generator should hold them."""

    def __init__(self, dtype: torch.dtype, tied: Mapping[str, str] | None = None) -> None:
        """Takes nothing yet.

        Args:
            dtype: In which the generator keeps its weights.
            tied: Other names of tied weights → the one they are held by.
        """
        self._dtype, self._tied = dtype, tied or {}
        self._of: dict[str, int] = {}

    def passing(self, weights: Iterable[Named]) -> Iterator[Named]:
        """Yields weights as they are, and remembers the fingerprint of each."""
        for name, weight in weights:
            self._of[self._tied.get(name, name)] = fingerprint(weight.to(self._dtype))
            yield name, weight

    def differences(self, held: Iterable[Named]) -> list[str]:
        """Names of weights that are held with other bits, were never given, or are not held; sorted.

        Args:
            held: See `Policy.held_weights`.
        """
        found, seen = set(), set()
        for name, weight in held:
            seen.add(name)
            if self._of.get(name) != fingerprint(weight):
                found.add(name)
        return sorted(found | (self._of.keys() - seen))
