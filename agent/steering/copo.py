"""CoPO during the rollout: each step is also answered at the other levels of thinking."""

from __future__ import annotations

from collections.abc import Sequence

from agent.prompts.turns import TurnFormat
from agent.steering.base import ActOn, AskAgain, Decision, TriedResponse
from agent.types import Trajectory
from credit.stages.copo import CoPO


class CopoSteering:
    """A `Steering` with the options of a `credit.copo` stage."""

    top = 0

    def __init__(self, rules: CoPO) -> None:
        self._rules = rules

    def pilot(self, turns: TurnFormat) -> _Pilot:
        """See `Steering.pilot`."""
        return _Pilot(self._rules, turns)


class _Pilot:
    """Plays the first answer; the others are recorded beside it."""

    def __init__(self, rules: CoPO, turns: TurnFormat) -> None:
        self._rules, self._turns = rules, turns

    def decide(self, trajectory: Trajectory, tries: Sequence[TriedResponse]) -> Decision:
        """See `Pilot.decide`."""
        wanted = self._others(self._turns.decode(tries[0].generation.ids))
        asked = len(tries) - 1
        if asked < len(wanted):
            return AskAgain(tuple(self._turns.encode(self._turns.unopened(wanted[asked]))))
        return ActOn(tries[0].generation, unplayed=tuple(range(1, len(tries))))

    def _others(self, played: str) -> list[str]:
        """The levels to answer at besides the played one."""
        levels = self._rules.levels
        if self._rules.original == "own":
            return list(levels)
        own = [level for level in levels if played.startswith(self._turns.unopened(level))]
        return [level for level in levels if level != max(own, key=len)] if own else []
