"""Maps each steering stage to its implementation."""

from __future__ import annotations

from collections.abc import Sequence

from agent.steering.base import Steering
from agent.steering.copo import CopoSteering
from agent.steering.t2po import T2POSteering
from credit.base import Steer

STEERINGS = {"copo": CopoSteering, "t2po": T2POSteering}
"""Maps each steering stage to its implementation; `tree_search` is played by `rl.search.searcher`."""


def steering(stages: Sequence[Steer]) -> Steering | None:
    """Returns the steering of a method (a pipeline has one such stage at most), None if it has none."""
    made = STEERINGS.get(stages[0].name()) if stages else None
    return made and made(stages[0])
