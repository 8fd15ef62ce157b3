"""Watches an environment: it returns the right types and leaves global random state alone.

Part of the conformance kit (`envs.checks`). The messages say what to change.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from configs.errors import UserError
from envs.base import Env, Observation, Outcome, Task

DRAW = (
    "Trajectories follow from task, seed and actions alone: draw from "
    "random.Random(configs.seeds.derive(seed, …)) or numpy's default_rng of it"
)
_GYMNASIUM = "as Gymnasium does: wrap the environment in envs.from_gymnasium.FromGymnasium"


class NonConforming(UserError, AssertionError):
    """An environment breaks the contract; the message says which promise, on which task."""


class Watched(Env):
    """Plays another environment, and raises `NonConforming` when it breaks a promise."""

    def __init__(self, env: Env) -> None:
        self._env = env

    @property
    def instruction(self) -> str:
        """See `Env`."""
        return self._env.instruction

    def reset(self, task: Task, seed: int = 0) -> Observation:
        """See `Env.reset`."""
        return observation_of("reset", self._watch("reset", lambda: self._env.reset(task, seed)))

    def step(self, action: str) -> Outcome:
        """See `Env.step`."""
        return outcome_of(self._watch("step", lambda: self._env.step(action)))

    def snapshot(self) -> Any:
        """See `Env.snapshot`."""
        return self._watch("snapshot", self._env.snapshot)

    def restore(self, snapshot: Any) -> Observation:
        """See `Env.restore`."""
        return observation_of("restore", self._watch("restore", lambda: self._env.restore(snapshot)))

    def close(self) -> None:
        """See `Env.close`."""
        self._env.close()

    @staticmethod
    def _watch(what: str, call: Callable[[], Any]) -> Any:
        before = global_states()
        found = call()
        for name, state in global_states().items():
            # A library imported during the call has no earlier state.
            if name in before and state != before[name]:
                raise NonConforming(f"{what} draws from the global random state of `{name}`. {DRAW}")
        return found


def observation_of(what: str, found: Any) -> Observation:
    """Returns an observation, if it is one.

    Raises:
        NonConforming: it is something else.
    """
    if isinstance(found, tuple) and len(found) == 2 and isinstance(found[1], dict):
        raise NonConforming(f"{what} returns (observation, info), {_GYMNASIUM}")
    if not isinstance(found, Observation):
        raise NonConforming(f"{what} returns a {type(found).__name__}: return an envs.base.Observation")
    return found


def outcome_of(found: Any) -> Outcome:
    """Returns an outcome, if it is one.

    Raises:
        NonConforming: it is something else.
    """
    if isinstance(found, tuple) and len(found) in (4, 5) and isinstance(found[-1], dict):
        parts = "observation, reward, terminated, truncated, info"
        raise NonConforming(
            f"step returns ({parts if len(found) == 5 else 'observation, reward, done, info'}), {_GYMNASIUM}"
        )
    if not isinstance(found, Outcome):
        raise NonConforming(f"step returns a {type(found).__name__}: return an envs.base.Outcome")
    observation_of("step's outcome", found.observation)
    for name in ("terminated", "truncated", "success"):  # a walk goes by them
        value = getattr(found, name)
        if not isinstance(value, (bool, np.bool_)):
            raise NonConforming(f"outcome.{name} is true or false, got {value!r:.80}")
    return found


def global_states() -> dict[str, Any]:
    """What the global generators of this process would draw next, by library; torch's if it is in use."""
    name, keys, *rest = np.random.get_state()
    states = {"random": random.getstate(), "numpy.random": (name, keys.tobytes(), *rest)}
    if torch := sys.modules.get("torch"):
        states["torch"] = torch.random.get_rng_state().numpy().tobytes()
    return states


@contextmanager
def other_global_state(seed: int) -> Iterator[None]:
    """Puts the global generators into another state, and restores them at the end."""
    torch = sys.modules.get("torch")
    kept = random.getstate(), np.random.get_state(), torch and torch.random.get_rng_state()
    random.seed(seed)
    np.random.seed(seed)
    if torch:
        torch.random.manual_seed(seed)
    try:
        yield
    finally:
        random.setstate(kept[0])
        np.random.set_state(kept[1])
        if torch:
            torch.random.set_rng_state(kept[2])
