"""Responses being sampled: one per slot, in arrays, so one decoding round needs no per-row Python."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from agent.types import Generation


class Responses:
    """The responses being sampled, by the slot of their rows.

    Axes: S slots, N tokens of a response, K signals of a token, A responses in flight by slot.

    Args:
        slots: Number of slots.
        stop_ids: Tokens that end a response.

    Attributes:
        active_A: Slots with a response in flight, increasing.
    """

    def __init__(self, slots: int, stop_ids: Sequence[int]) -> None:
        self.active_A = np.empty(0, dtype=np.int64)
        self._stop_ids = np.asarray(sorted(set(stop_ids)))
        self._prompt_S, self._limit_S, self._count_S = (np.zeros(slots, dtype=np.int64) for _ in range(3))
        self._uniform_SN = np.zeros((slots, 0))
        self._ids_SN = np.zeros((slots, 0), dtype=np.int64)
        self._logp_SN = np.zeros((slots, 0), dtype=np.float32)
        self._signal_SNK = np.zeros((slots, 0, 0), dtype=np.float32)

    def add(self, slot: int, *, prompt: int, limit: int, seed: int, signals: int = 0) -> None:
        """Begins a response in a free slot.

        Args:
            slot: Of its row.
            prompt: Tokens of the row so far.
            limit: Longest response.
            seed: Of its draws.
            signals: K, numbers recorded beside each token.
        """
        longest = self._ids_SN.shape[1]
        if limit > longest or signals != self._signal_SNK.shape[2]:
            more = max(limit, longest) - longest
            self._uniform_SN, self._ids_SN, self._logp_SN = (
                np.pad(array, ((0, 0), (0, more)))
                for array in (self._uniform_SN, self._ids_SN, self._logp_SN)
            )
            self._signal_SNK = np.zeros((*self._ids_SN.shape, signals), dtype=np.float32)
        self._prompt_S[slot], self._limit_S[slot], self._count_S[slot] = prompt, limit, 0
        self._uniform_SN[slot, :limit] = np.random.default_rng(seed).random(limit)
        self.active_A = np.insert(self.active_A, np.searchsorted(self.active_A, slot), slot)

    def drop(self, slots: Sequence[int]) -> None:
        """Ends the responses of these slots, or gives them up."""
        self.active_A = self.active_A[~np.isin(self.active_A, slots)]

    def uniform_A(self) -> np.ndarray:
        """The draw of each response's next token, in [0, 1)."""
        return self._uniform_SN[self.active_A, self._count_S[self.active_A]]

    def last_A(self) -> tuple[np.ndarray, np.ndarray]:
        """The last token of each response and its position in the row."""
        count_A = self._count_S[self.active_A]
        return self._ids_SN[self.active_A, count_A - 1], self._prompt_S[self.active_A] + count_A - 1

    def record(self, ids_A: np.ndarray, logp_A: np.ndarray, signal_AK: np.ndarray | None) -> np.ndarray:
        """Takes one token of each response; returns the slots whose response this ended."""
        slot_A, count_A = self.active_A, self._count_S[self.active_A]
        self._ids_SN[slot_A, count_A], self._logp_SN[slot_A, count_A] = ids_A, logp_A
        if signal_AK is not None:
            self._signal_SNK[slot_A, count_A] = signal_AK
        self._count_S[slot_A] = count_A + 1
        return slot_A[np.isin(ids_A, self._stop_ids) | (count_A + 1 >= self._limit_S[slot_A])]

    def generation(self, slot: int) -> Generation:
        """The response of a slot as far as it has come."""
        count = self._count_S[slot]
        ids = self._ids_SN[slot, :count].tolist()
        signals = self._signal_SNK[slot, :count].tolist() if self._signal_SNK.shape[2] else None
        finish = "stop" if ids[-1] in self._stop_ids else "length"
        return Generation(ids, self._logp_SN[slot, :count].tolist(), finish, signals)
