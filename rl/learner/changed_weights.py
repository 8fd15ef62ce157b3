"""How many weights an update changed, measured on what the policy receives."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import torch

SAMPLE = 131_072
"""Most elements compared of one weight, evenly spaced: a share is known to 0.3 % (two standard errors)."""


class Handed:
    """Remembers part of the weights last handed to the policy, to compare the next ones with.

    A weight is compared in the type in which it is handed over, adapters merged: what does not show there,
    the policy does not see. Up to `SAMPLE` elements of it are kept, on its device.
    """

    def __init__(self, trained: Collection[str]) -> None:
        """Remembers nothing yet.

        Args:
            trained: Names of the weights that are trained, as they are handed over; others are not looked at.
        """
        self._trained = trained
        self._before: dict[str, torch.Tensor] = {}
        self._changed: list[tuple[int, int, torch.Tensor]] = []  # elements, compared, of these changed

    def passing(self, weights: Iterable[tuple[str, torch.Tensor]]) -> Iterator[tuple[str, torch.Tensor]]:
        """Yields `weights` as they are, and compares each with the one of its name that passed before."""
        self._changed = []
        for name, weight in weights:
            if name in self._trained:
                self._look(name, weight)
            yield name, weight

    def _look(self, name: str, weight: torch.Tensor) -> None:
        flat = weight.detach().reshape(-1)
        # An odd distance: one that divides a row's length would meet the same columns again and again.
        distance = -(-len(flat) // SAMPLE) | 1
        now = flat[::distance].clone()
        if name in self._before:
            self._changed.append((len(flat), len(now), (now != self._before[name]).sum()))
        self._before[name] = now

    def share(self) -> float | None:
        """The share of trained elements that changed between the last two passes; None after the first."""
        if not self._changed:
            return None
        total = sum(size for size, _, _ in self._changed)
        return sum(size * float(changed) / seen for size, seen, changed in self._changed) / total
