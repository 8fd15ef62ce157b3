"""What a method may do to a rollout while it is played: the seam, and nothing of any method.

Before a step is played, a `Pilot` sees every response to its prompt, and either asks for another one or says
which of them acts. One `Pilot` accompanies one trajectory, so it may remember what it has seen of it; it must
draw nothing at random, so that a trajectory still depends on its seeds alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from agent.prompts.turns import TurnFormat
from agent.types import Generation, Trajectory


@dataclass(frozen=True, slots=True)
class TriedResponse:
    """One response to the prompt of the step being made.

    Attributes:
        opening: Tokens it was made to begin with; they were not sampled and are no part of `generation`.
        generation: What was sampled after them.
    """

    opening: tuple[int, ...]
    generation: Generation


@dataclass(frozen=True, slots=True)
class AskAgain:
    """Answer the same prompt again, beginning with these tokens."""

    opening: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ActOn:
    """Play this response. `forced` of its tokens, as a slice, were not sampled and carry no loss.

    Attributes:
        generation: The whole response, forced tokens included (their log-probability is 0).
        forced: [start, end) among its tokens.
        unplayed: Numbers of the tries that the step records beside it, as `Step.unplayed`.
    """

    generation: Generation
    forced: tuple[int, int] = (0, 0)
    unplayed: tuple[int, ...] = ()


Decision = AskAgain | ActOn


class Pilot(Protocol):
    """Accompanies one trajectory."""

    def decide(self, trajectory: Trajectory, tries: Sequence[TriedResponse]) -> Decision:
        """What becomes of a step.

        Args:
            trajectory: Its steps so far.
            tries: The responses to the current prompt, at least one, the newest last.
        """


class Steering(Protocol):
    """A method's hand in the rollout.

    Attributes:
        top: Candidates recorded for each token, see `Sampling.top`.
    """

    top: int

    def pilot(self, turns: TurnFormat) -> Pilot:
        """A pilot for a new trajectory; `turns` decodes responses and encodes openings."""
