"""Checks that every backend makes of its requests and of the weights it takes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import torch

from agent.policy import PolicyError
from agent.types import Request


def check_keys(requests: Sequence[Request], busy: Collection[int] = ()) -> None:
    """Checks that each conversation has at most one response at a time.

    Args:
        requests: To be started together.
        busy: Keys with a response in flight.

    Raises:
        PolicyError: two requests of one key.
    """
    keys = [request.key for request in requests]
    if len(set(keys)) != len(keys) or not set(keys).isdisjoint(busy):
        raise PolicyError("generate: two requests have the same key; a row has one response at a time")


def extended(ids: Sequence[int] | None, request: Request, window: int) -> tuple[list[int], int]:
    """The row of a request's key with the request's tokens added.

    Args:
        ids: The row so far; None for a key that has none.
        request: What is asked.
        window: Longest row, prompt and response.

    Returns:
        The new row, a new list, and how many of its first tokens are those of the old one.

    Raises:
        PolicyError: a continuation of an unknown key, more tokens to keep than there are, an empty prompt, or
            one that leaves no room for a response.
    """
    if ids is None:
        if not request.fresh:
            raise PolicyError(f"generate: key {request.key} is unknown and its request not fresh")
        ids = ()
    kept = 0 if request.fresh else len(ids) if request.keep is None else request.keep
    if kept > len(ids):
        raise PolicyError(f"generate: key {request.key} keeps {kept} tokens of the {len(ids)} it has")
    row = [*ids[:kept], *request.ids]
    nothing_new = not request.ids and (request.keep is None or not kept)
    if nothing_new or len(row) >= window or request.max_new_tokens < 1:
        raise PolicyError(
            f"generate: key {request.key} adds {len(request.ids)} tokens, which makes {len(row)}, and "
            f"asks for up to {request.max_new_tokens}; a prompt must not be empty and must leave room in "
            f"the window ({window})"
        )
    return row, kept


def unique(weights: Mapping[str, torch.Tensor]) -> Iterator[tuple[str, torch.Tensor]]:
    """The weights of a state dict (`keep_vars=True`), tied ones under the first of their names."""
    seen = set()
    for name, weight in weights.items():
        if id(weight) not in seen:
            seen.add(id(weight))
            yield name, weight


class WeightCheck:
    """Checks one load of weights by name and shape, as they come; of tied weights one name is enough.

    Args:
        targets: The model's state dict, in which tied weights are the same tensor (`keep_vars=True`).
    """

    def __init__(self, targets: Mapping[str, torch.Tensor]) -> None:
        self._targets = targets
        self._first: dict[int, str] = {}
        for name, target in targets.items():
            self._first.setdefault(id(target), name)
        self._missing = set(self._first.values())

    def take(self, name: str, tensor: torch.Tensor) -> str:
        """Returns the first of the names of a weight.

        Raises:
            PolicyError: the model has no such weight, or one of another shape.
        """
        target = self._targets.get(name)
        if target is None:
            raise PolicyError(f"load_weights: unknown weight {name!r}; there are {', '.join(self._targets)}")
        if target.shape != tensor.shape:
            raise PolicyError(
                f"load_weights: {name} is {tuple(tensor.shape)}, the policy's is {tuple(target.shape)}: "
                "these are weights of another model"
            )
        first = self._first[id(target)]
        self._missing.discard(first)
        return first

    def finish(self) -> None:
        """Ends the load.

        Raises:
            PolicyError: the model has weights that did not come.
        """
        if self._missing:
            missing = [name for name in self._targets if name in self._missing]
            raise PolicyError(f"load_weights: no value for {', '.join(missing)}")
