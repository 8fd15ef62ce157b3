"""One step of a walk that a policy may imitate, whatever the environment."""

from __future__ import annotations

from dataclasses import dataclass

from envs.base import Observation


@dataclass(frozen=True, slots=True)
class Demonstrated:
    """One step of a demonstration: what was seen, what was thought, what was done.

    Attributes:
        observation: Before the action.
        thought: What the action is for, in words.
        action: The command played.
        mistake: Whether the step is not the expert's.
    """

    observation: Observation
    thought: str
    action: str
    mistake: bool = False
