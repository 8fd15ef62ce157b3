"""Accelerators by their data sheets, and the seconds that counted work would take on them.

Everything that is assumed is a constant of this file with its source. Nothing is taken to overlap: a phase's
seconds are those of its operations, its bytes over each way, and its rounds, added up. All ranks are taken to
be in one machine, joined by NVLink.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from commands.gpu_memory import CARD


@dataclass(frozen=True, slots=True)
class Card:
    """An accelerator by its data sheet.

    Attributes:
        memory: GiB as PyTorch reports them.
        peak: Operations per second, dense bfloat16.
        hbm: Bytes per second of its memory.
        link: Bytes per second to the other cards, one way.
        pcie: Bytes per second to main memory, one way.
    """

    memory: float
    peak: float
    hbm: float
    link: float
    pcie: float


CARDS: Mapping[str, Card] = {
    "a100": Card(CARD, 312e12, 2.039e12, 300e9, 32e9),
    "h100": Card(CARD, 989e12, 3.35e12, 450e9, 64e9),
}
"""NVIDIA's data sheets of A100 80GB SXM (NVLink 600 GB/s and PCIe 4.0 64 GB/s, both ways together) and
H100 SXM (989 Tflop/s without sparsity; 900 and 128 GB/s)."""

MFU = 0.40
"""Assumed: share of the peak in matrix multiplications, learner, prompts and scorer alike."""
HBM_SHARE = 0.70
"""Assumed: share of the memory's bandwidth reached in decoding and in the optimiser's step."""
LINK_SHARE = 0.75
"""Assumed: share of NVLink's bandwidth that NCCL's rings reach with large messages; of PCIe's too."""
HOST_BYTES = 40e9
"""Assumed: bytes per second of main memory for each rank's optimiser step on the CPU."""
BATCH_S = 0.02
"""Assumed: launching a micro-batch, and waiting for its numbers."""
DECODE_S = 0.004
"""Assumed: vLLM's own time in a round of decoding (scheduler, sampler, CUDA graph)."""
WAKE_S = 2.0
"""Assumed: putting vLLM to sleep and waking it, once an update."""


@dataclass(frozen=True, slots=True)
class Phase:
    """What one rank does in one phase of an update.

    Attributes:
        name: Of the phase.
        operations: Multiplications and additions.
        hbm: Bytes read and written of the card's memory, where that is what takes time.
        link: Bytes sent to other cards.
        pcie: Bytes to and from main memory.
        host: Bytes of main memory that the CPU reads and writes.
        rounds: Micro-batches, or rounds of decoding.
        each: Seconds of a round beside its operations and bytes.
    """

    name: str
    operations: float = 0.0
    hbm: float = 0.0
    link: float = 0.0
    pcie: float = 0.0
    host: float = 0.0
    rounds: float = 0.0
    each: float = BATCH_S

    def seconds(self, card: Card, mfu: float = MFU) -> float:
        """Seconds on `card`."""
        return (
            self.operations / (card.peak * mfu)
            + self.hbm / (card.hbm * HBM_SHARE)
            + self.link / (card.link * LINK_SHARE)
            + self.pcie / (card.pcie * LINK_SHARE)
            + self.host / HOST_BYTES
            + self.rounds * self.each
        )
