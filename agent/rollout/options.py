"""The options of a rollout."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from agent.rollout.groups import OnFailure
from envs.base import Env
from envs.pools.pool import EnvPool

Progress = Callable[[int, int], None]
"""Told of (trajectories done, tokens sampled)."""

Mode = Literal["deterministic", "free"]
Environments = EnvPool | Callable[[], Env]
"""A pool, which stays open, or what makes an environment, for a pool in this process."""


@dataclass(frozen=True, slots=True)
class RolloutOptions:
    """How a rollout is run; what it plays does not depend on it, failures and time limits apart.

    Attributes:
        mode: See `agent.rollout.rollout`.
        on_failure: See `agent.rollout.groups.Roster`.
        time_limit_s: Longest a trajectory may take, waiting for the policy included; one that takes longer
            has failed with the reason `time_limit` (`deterministic`: if it is waited for). None: no limit.
        watchdog_s: Longest that nothing at all may happen before the process is ended, see `Watchdog`; more
            than the slowest batch of responses in the deterministic mode takes. None: no limit.
    """

    mode: Mode = "deterministic"
    on_failure: OnFailure = "stop"
    time_limit_s: float | None = None
    watchdog_s: float | None = None
