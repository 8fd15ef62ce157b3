"""One generator held by several ranks, a team: a model too large for one card lies in parts on theirs.

Every rank of a team computes its part of every token, so all must be asked for the same things in the same
order. What the team plays depends on when environments answer, which no two ranks would see alike. So the
team's first rank plays, and tells the others what it asks its generator for; they do the same and keep
nothing.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from agent.policy import Policy, PolicyError, Sampling
from agent.ranks import Ranks
from agent.types import Generation, Request

_END = "end"


class TeamPolicy:
    """A policy whose twins on the team's other ranks have to be asked for the same.

    Outside of `leading` every rank of the team must make the same calls by itself, as it does where weights
    are handed over. Inside, the first rank calls as it likes, and the others are in `follow`.

    One message is sent per round of decoding. It carries a checksum of all tokens sampled so far: ranks that
    came to differ in a token would otherwise compute on different rows, and nobody would notice.

    Args:
        policy: This rank's part; the same on every rank of the team.
        team: The ranks of the team. The channel is used by nobody else.
    """

    takes_adapters = False  # parts of adapters could not be read back whole: it gets merged weights

    def __init__(self, policy: Policy, team: Ranks) -> None:
        self._policy, self._team = policy, team
        self._leading = False
        self._untold: list[tuple[str, tuple[Any, ...]]] = []
        self._sampled = 0

    @property
    def rank(self) -> int:
        """Of this process in its team, from 0."""
        return self._team.rank

    @property
    def size(self) -> int:
        """Ranks of a team."""
        return self._team.size

    @property
    def version(self) -> int:
        """See `Policy.version`."""
        return self._policy.version

    @property
    def window(self) -> int:
        """See `Policy.window`."""
        return self._policy.window

    @property
    def dtype(self) -> torch.dtype:
        """See `Policy.dtype`."""
        return self._policy.dtype

    @contextmanager
    def leading(self) -> Iterator[None]:
        """On the team's first rank: whatever is asked of this policy inside is asked of all of the team's."""
        self._leading = True
        try:
            yield
        except Exception:
            self._tell(_END)  # the others go on to where the ranks meet next, and find out there
            raise
        else:
            self._tell(_END)
        finally:
            self._leading, self._untold = False, []

    def follow(self) -> None:
        """On the team's other ranks: does what the first one does, until that leaves `leading`.

        Raises:
            PolicyError: this rank has sampled other tokens than the first.
        """
        while True:
            told, calls = self._team.share(None)
            if told != self._sampled:
                raise PolicyError(
                    f"rank {self.rank} of a tensor-parallel team has sampled other tokens than its first: "
                    "their generators computed different numbers. Set generator.tensor_parallel=1 if the "
                    "model fits one card, and report the hardware"
                )
            for name, args in calls:
                if name == _END:
                    return
                self._did(name, getattr(self._policy, name)(*args))

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> list[Generation]:
        """See `Policy.generate`."""
        self._tell("generate", list(requests), sampling)
        return self._did("generate", self._policy.generate(requests, sampling))

    def start(self, requests: Sequence[Request], sampling: Sampling) -> None:
        """See `Policy.start`."""
        self._policy.start(requests, sampling)  # first: what it refuses, nobody else need hear of
        self._note("start", list(requests), sampling)

    def advance(self) -> list[tuple[int, Generation]]:
        """See `Policy.advance`."""
        self._tell("advance")
        return self._did("advance", self._policy.advance())

    def release(self, key: int) -> None:
        """See `Policy.release`."""
        self._policy.release(key)
        self._note("release", key)

    def sleep(self) -> None:
        """See `Policy.sleep`."""
        self._policy.sleep()

    def close(self) -> None:
        """See `Policy.close`."""
        self._policy.close()

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]], version: int) -> None:
        """See `Policy.load_weights`; every rank is given whole weights and keeps its part of them."""
        self._policy.load_weights(weights, version)

    def held_weights(self) -> Iterator[tuple[str, torch.Tensor]] | None:
        """See `Policy.held_weights`; parts are put together, so every rank of the team must read them all."""
        return self._policy.held_weights()

    def _note(self, name: str, *args: Any) -> None:
        """Has the others told of a call by the next message."""
        if self._leading:
            self._untold.append((name, args))

    def _tell(self, name: str, *args: Any) -> None:
        """Tells the others of a call, before it is made here: they compute it together."""
        self._note(name, *args)
        if self._leading:
            calls, self._untold = self._untold, []
            self._team.share((self._sampled, calls))

    def _did(self, name: str, result: Any) -> Any:
        """Adds the tokens of a call's result to the checksum."""
        if name in ("generate", "advance"):
            tokens = [one.ids if name == "generate" else (one[0], one[1].ids) for one in result]
            self._sampled = zlib.crc32(repr(tokens).encode(), self._sampled)
        return result
