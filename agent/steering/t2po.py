"""T2PO during the rollout; its rules are in `credit.parts.t2po_rules`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from agent.prompts.turns import TurnFormat
from agent.steering.base import ActOn, AskAgain, Decision, TriedResponse
from agent.types import Generation, Trajectory
from credit.parts.t2po_rules import must_resample, stop_thinking, turn_score, uncertainty
from credit.stages.t2po import T2PO


class T2POSteering:
    """A `Steering` with the options of a `credit.t2po` stage."""

    def __init__(self, rules: T2PO) -> None:
        self.top = rules.top
        self._rules = rules

    def pilot(self, turns: TurnFormat) -> _Pilot:
        """See `Steering.pilot`."""
        return _Pilot(self._rules, turns)


@dataclass(slots=True)
class _Pilot:
    """Remembers the signals of the steps kept, and the score of the last of them."""

    rules: T2PO
    turns: TurnFormat
    _kept: list[list[float]] = field(default_factory=list)  # [tokens so far][entropy, candidates …]
    _previous: float | None = None
    _again: int = 0
    _cut: Generation | None = None  # what was sampled before `</think>` was put in

    def decide(self, trajectory: Trajectory, tries: Sequence[TriedResponse]) -> Decision:
        """See `Pilot.decide`."""
        newest = tries[-1]
        whole, forced = self._joined(newest)
        stop = None if self._cut else self._stop(whole)
        if stop is not None:
            self._cut = _first(whole, stop)
            return AskAgain((*self._cut.ids, *self.turns.encode("</think>")))
        self._cut = None
        score = turn_score(self._signal(whole.signals))
        if self._again < self.rules.max_try and self._says_nothing_new(score):
            self._again += 1
            return AskAgain()
        self._again, self._previous = 0, score
        self._kept += whole.signals
        return ActOn(whole, forced)

    def _says_nothing_new(self, score: float) -> bool:
        first = self._previous is None
        previous = np.array([0.0 if first else self._previous])
        return bool(must_resample(np.array([score]), previous, first_step=first, eta=self.rules.eta)[0])

    def _signal(self, signals: Sequence[Sequence[float]]) -> np.ndarray:
        """M of these tokens, scaled over all tokens kept so far and these."""
        values = np.asarray([*self._kept, *signals], dtype=np.float64)
        return uncertainty(values[:, 0], values[:, 1:], self.rules.alpha)[len(self._kept) :]

    def _stop(self, generation: Generation) -> int | None:
        """After how many tokens to end the thought, None if it ends before by itself."""
        rules = self.rules
        ids = generation.ids
        thought = (self.turns.reach(ids, "</think>") or len(ids) + 1) - 1
        for count in range(rules.min_prefix, thought):
            signal = self._signal(generation.signals[:count])  # nothing later may move its scale
            options = dict(window=rules.window, epsilon=rules.epsilon, min_prefix=count)
            if stop_thinking(signal, **options) == count:
                return count
        return None

    def _joined(self, newest: TriedResponse) -> tuple[Generation, tuple[int, int]]:
        """The whole response, what was put into it included, and where that is."""
        cut, rest = self._cut, newest.generation
        if cut is None:
            return rest, (0, 0)
        put = list(newest.opening[len(cut.ids) :])
        whole = Generation(
            cut.ids + put + rest.ids,
            cut.logps + [0.0] * len(put) + rest.logps,
            rest.finish,
            cut.signals + rest.signals,
        )
        return whole, (len(cut.ids), len(cut.ids) + len(put))


def _first(generation: Generation, count: int) -> Generation:
    return Generation(
        generation.ids[:count], generation.logps[:count], generation.finish, generation.signals[:count]
    )
