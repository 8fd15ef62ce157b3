"""What the rollout needs of a policy, whatever generates the tokens."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from agent.types import Generation, Request
from configs.errors import UserError


class PolicyError(UserError, RuntimeError):
    """The policy was used against its contract, or given weights of another model."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are drawn. `temperature` 0 is greedy. No top-p/top-k: they would make the sampled
    distribution differ from the one the learner differentiates. `top` > 0 has every token's entropy and
    that many candidates recorded (`Generation.signals`)."""

    temperature: float = 1.0
    top: int = 0


class Policy(Protocol):
    """A generator of responses, one conversation per key, one response at a time in each.

    A batch is asked for with `generate`. Where prompts come one by one, `start` and `advance` serve them as
    they come: the responses in flight grow together, and each is handed out in the round that ends it.
    """

    version: int
    window: int
    dtype: torch.dtype

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> list[Generation]:
        """Samples one response per request, in the order of the requests; nothing else may be in flight."""

    def start(self, requests: Sequence[Request], sampling: Sampling) -> None:
        """Takes requests in, beside those in flight, which must have the same `sampling`."""

    def advance(self) -> list[tuple[int, Generation]]:
        """Decodes one round for everything in flight; returns (key, response) of what ended in it."""

    def release(self, key: int) -> None:
        """Forgets the conversation `key`, a response in flight included; unknown keys are fine."""

    def sleep(self) -> None:
        """Gives accelerator memory back to the learner until the next `load_weights`, which must come before
        anything is asked for; nothing may be in flight."""

    def close(self) -> None:
        """Gives back whatever it holds; nothing may be asked of it afterwards."""

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]], version: int) -> None:
        """Takes the learner's weights and drops every cached state computed with older ones."""

    def held_weights(self) -> Iterator[tuple[str, torch.Tensor]] | None:
        """What it samples with, read back: every tensor under the name that `load_weights` knows it by.

        A weight of which there is a second copy (a tied head with memory of its own) comes once per copy.
        None where weights are in other processes, which compare by themselves (`agent.server.weight_state`).
        """
