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

    Attributes:
        version: Of the weights, as given with them.
        window: Longest row, prompt and response (tokens).
        takes_adapters: Whether it is an `AdapterPolicy`.
    """

    version: int
    window: int
    takes_adapters: bool
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
        """Gives accelerator memory back to the learner until weights are loaded, which must come before
        anything is asked for; nothing may be in flight."""

    def close(self) -> None:
        """Gives back whatever it holds; nothing may be asked of it afterwards."""

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]], version: int) -> None:
        """Takes the learner's weights and drops every cached state computed with older ones, and adapters.

        Args:
            weights: (name in the Hugging Face model's state dict, tensor of any dtype and device); of tied
                weights one name is enough.
            version: Number of these weights.
        """

    def held_weights(self) -> Iterator[tuple[str, torch.Tensor]] | None:
        """What it samples with, read back: every tensor under the name that it was loaded by, adapters too.

        A weight of which there is a second copy (a tied head with memory of its own) comes once per copy.
        None where weights are in other processes, which compare by themselves (`agent.server.weight_state`).
        """


class AdapterPolicy(Policy, Protocol):
    """A policy that holds low-rank adapters beside its weights.

    Attributes:
        wants_base: Whether `load_weights` must come before `load_adapters`.
    """

    wants_base: bool

    def load_adapters(self, weights: Iterable[tuple[str, torch.Tensor]], version: int) -> None:
        """Takes adapters instead of those before, and drops every cached state computed with older ones.

        The weights that they are added to are those of the last `load_weights`: W·x + B·(A·x).

        Args:
            weights: A and B of every adapter under the names of peft's files, B scaled; copied.
            version: Number of these weights.

        Raises:
            PolicyError: `load_weights` has to come first, responses are in flight, or these are adapters of
                another model.
        """
