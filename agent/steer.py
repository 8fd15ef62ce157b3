"""Which class steers the rollout under which credit stage."""

from __future__ import annotations

from collections.abc import Sequence

from agent.steer_copo import CopoSteering
from agent.steer_t2po import T2POSteering
from agent.steering import Steering
from credit.base import Steer

STEERINGS = {"copo": CopoSteering, "t2po": T2POSteering}
"""Name of a `credit.base.Steer` stage → the class, made with that stage. `branch` is `rl.search`'s."""


def steering(stages: Sequence[Steer]) -> Steering | None:
    """Returns the steering of a method (a pipeline has one such stage at most), None if it has none."""
    made = STEERINGS.get(stages[0].name()) if stages else None
    return made and made(stages[0])
