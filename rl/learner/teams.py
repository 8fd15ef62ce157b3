"""Channels within teams: so many neighbouring ranks of a run that hold one generator together."""

from __future__ import annotations

from datetime import timedelta
from typing import TypeVar

import torch.distributed as dist

from rl.learner.processes import waiting

T = TypeVar("T")


class TeamChannel:
    """See `agent.ranks.Ranks`, for the ranks of one team; ranks 0 … size − 1 are the first, and so on."""

    def __init__(self, size: int, timeout_s: float) -> None:
        """Opens the channels of all teams; every rank of the run must do so at the same point.

        Args:
            size: Ranks of a team; divides the number of ranks.
            timeout_s: Longest to wait for another rank in one call. A team waits for the environments of its
                first rank.
        """
        self.rank, self.size = dist.get_rank() % size, size
        self._timeout_s = timeout_s
        with waiting("a channel between the ranks of a team", timeout_s):
            self._group, _ = dist.new_subgroups(size, backend="gloo", timeout=timedelta(seconds=timeout_s))

    def gather(self, value: T) -> list[T]:
        """See `Ranks.gather`."""
        values: list[T | None] = [None] * self.size
        with waiting("what the others of its team have to say", self._timeout_s):
            dist.all_gather_object(values, value, group=self._group)
        return values

    def share(self, value: T) -> T:
        """See `Ranks.share`."""
        box = [value]
        with waiting("what the first rank of its team asks for", self._timeout_s):
            dist.broadcast_object_list(box, group=self._group, group_src=0)
        return box[0]
