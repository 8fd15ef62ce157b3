"""What the rollout needs of a policy, whatever generates the tokens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from agent.types import Generation, Request


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are drawn. `temperature` 0 is greedy. No top-p/top-k: they would make the sampled
    distribution differ from the one the learner differentiates."""

    temperature: float = 1.0


class Policy(Protocol):
    """A generator of responses, one conversation a key."""

    version: int
    window: int

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> list[Generation]:
        """Samples one response a request, in the order of the requests."""

    def release(self, key: int) -> None:
        """Forgets the conversation `key`; unknown keys are fine."""

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]], version: int) -> None:
        """Takes the learner's weights and drops every cached state computed with older ones."""
