"""A search expert: it plays from what it has seen, and says what it is about to do.

It reads the task sentence and the texts, and looks for things where things of that class mostly are (the
measured table of `layouts.py`), the cheapest likely place first. Nothing else is known to it: neither the
game nor, unless asked for, the admissible commands.

Its thought, a few words before each action, is its subgoal and always of one form,

    VERB THING at PLACE        find mug at shelf 2 · take mug 1 at shelf 2 · clean mug 1 at sinkbasin 1
                               put mug 1 at cabinet 3 · find second mug at shelf 3 · use desklamp 1 at desk 1

so the state (phase, thing, known place) is in the text a model writes, and the action follows from the
thought and the last observation: go there, open it, do it.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from envs.alfworld.goals import Goal, parse_goal
from envs.alfworld.layouts import stats
from envs.alfworld.memory import CLOSED, OPEN, UNSEEN, Memory, kind, number
from envs.base import Observation

# One receptacle class is enough to recognise the room.
_TELLTALE = (("toilet", "bathroom"), ("microwave", "kitchen"), ("bed", "bedroom"))

# Chance, for any class, of being where the table has never seen it (relative to 1 for the whole room).
_FLOOR = 0.002


@dataclass(frozen=True, slots=True)
class Subgoal:
    """What the expert is after: `verb` `thing` at `place` (all as shown in the text)."""

    verb: str
    thing: str
    place: str

    def __str__(self) -> str:
        return f"{self.verb} {self.thing} at {self.place}"


class SearchExpert:
    """Plays one trajectory at a time; `reset`, then `act` once per step.

    Attributes:
        thought: Subgoal of the last action, in words.
    """

    def __init__(self, *, seed: int = 0, noise: float = 0.0, use_admissible: bool = False) -> None:
        """Sets the habits of this expert.

        Args:
            seed: Of its own random draws; one stream over all trajectories.
            noise: Probability that the next place to search is any unsearched one, not the likeliest.
            use_admissible: Also learn from the admissible commands (what shares this location, what
                can be taken here). Without, every action follows from the texts alone, as a policy that
                is not shown the commands needs it.
        """
        if not 0.0 <= noise <= 1.0:
            raise ValueError(f"noise is a probability, got {noise}")
        self.thought = ""
        self._noise = noise
        self._use_admissible = use_admissible
        self._rng = random.Random(f"alfworld expert {seed}")
        self._memory: Memory | None = None
        self._goal: Goal | None = None
        self._action = ""

    def reset(self, instruction: str, observation: Observation | str) -> None:
        """Starts a trajectory.

        Args:
            instruction: The task sentence.
            observation: The first observation, or its text.

        Raises:
            ValueError: the sentence or the introduction is not of ALFWorld's form.
        """
        self._goal = parse_goal(instruction)
        self._memory = Memory(_text(observation))
        self._priors = _room_priors(room_of(self._memory.receptacles))
        self._count = Counter(kind(r) for r in self._memory.receptacles)
        self._action = ""
        self._searching = ""
        self._gave_up: set[str] = set()
        self.thought = ""

    @property
    def places(self) -> list[str]:
        """Names of the room's receptacles, as the introduction lists them."""
        return list(self._memory.receptacles)

    def act(self, observation: Observation | str) -> str:
        """Reads the answer to the last action and chooses the next command; sets `thought`.

        Raises:
            RuntimeError: called before `reset`.
        """
        if self._memory is None:
            raise RuntimeError("SearchExpert.act before reset")
        self.observe(self._action, observation)
        subgoal = self._subgoal()
        self.thought = str(subgoal)
        self._action = self._command(subgoal)
        return self._action

    def observe(self, action: str, observation: Observation | str) -> None:
        """Takes in a step that someone else chose (`act` does it for its own)."""
        known = self._use_admissible and not isinstance(observation, str)
        if action:
            self._memory.update(action, _text(observation), observation.admissible if known else ())
        self._action = ""

    def _subgoal(self) -> Subgoal:
        """The next thing to do, from what is known."""
        memory, goal = self._memory, self._goal
        if not memory.held:
            copy = self._known_copy()
            return Subgoal("take", copy, memory.where[copy]) if copy else self._find(goal.target)
        if kind(memory.held) != goal.target:  # only after steps that someone else chose
            return Subgoal("put", memory.held, self._first(sorted(memory.here)))
        if goal.is_look:
            lamps = [o for o, r in memory.where.items() if kind(o) == goal.other and r not in self._gave_up]
            lamp = next((o for o in lamps if memory.where[o] in memory.here), lamps[-1] if lamps else "")
            return Subgoal("use", lamp, memory.where[lamp]) if lamp else self._find(goal.other)
        if goal.verb and (goal.verb, memory.held) not in memory.changed:
            return Subgoal(goal.verb, memory.held, self._first(self._of_kind(goal.tool)))
        return Subgoal("put", memory.held, self._target_place())

    def _known_copy(self) -> str:
        """A copy of the target to take, here if there is one, else the one seen last; "" if none is known."""
        memory = self._memory
        done = self._target_place() if self._goal.copies > 1 else ""
        copies = [o for o, r in memory.where.items() if kind(o) == self._goal.target and r != done]
        return next((o for o in copies if memory.where[o] in memory.here), copies[-1] if copies else "")

    def _target_place(self) -> str:
        """Receptacle to fill: where a copy already is if two are wanted, else one here, else the first."""
        memory = self._memory
        places = self._of_kind(self._goal.other)
        if self._goal.copies > 1:
            filled = [r for o, r in memory.where.items() if kind(o) == self._goal.target and r in places]
            if filled:
                return max(places, key=filled.count)
        return self._first([r for r in places if r in memory.here] or places)

    def _of_kind(self, name: str) -> list[str]:
        """Receptacles of a class, lowest number first."""
        return sorted((r for r in self._memory.receptacles if kind(r) == name), key=number)

    def _first(self, places: list[str]) -> str:
        """The first place that has not been given up.

        Raises:
            ValueError: the room has no such place, so the task cannot be done in it.
        """
        if not places:
            raise ValueError(f"the room lacks a receptacle for the task {self._goal}")
        return next((p for p in places if p not in self._gave_up), places[0])

    def _find(self, thing: str) -> Subgoal:
        """Where to look next for a class of things; stays with a place until its content was read."""
        memory = self._memory
        open_places = [r for r in memory.receptacles if memory.status[r] != OPEN and r not in self._gave_up]
        if not open_places:  # seen everything, and it is not there: look again
            self._gave_up.clear()
            memory.forget_contents()
            open_places = list(memory.receptacles)
        if self._searching not in open_places:
            if self._rng.random() < self._noise:
                self._searching = self._rng.choice(open_places)
            else:
                self._searching = max(open_places, key=lambda r: (self._value(thing, r), -number(r)))
        second = (
            self._goal.copies > 1
            and thing == self._goal.target
            and any(kind(o) == thing and kind(r) == self._goal.other for o, r in memory.where.items())
        )
        return Subgoal("find", f"second {thing}" if second else thing, self._searching)

    def _value(self, thing: str, place: str) -> float:
        """Chance of finding `thing` at `place`, per step it takes to look there."""
        status, here = self._memory.status[place], place in self._memory.here
        to_open = 1.0 if status == CLOSED or here else _openable().get(kind(place), 0.0)
        steps = to_open + (not here)
        # The table's chance is for all receptacles of the class together: each has its share.
        return self._priors.get(thing, {}).get(kind(place), _FLOOR) / (self._count[kind(place)] * steps)

    def _command(self, subgoal: Subgoal) -> str:
        """The command that brings the subgoal forward; a place that keeps refusing is given up."""
        refused = self._memory.refused
        for _ in range(len(self._memory.receptacles) + 1):
            for command in self._attempts(subgoal):
                if command not in refused:
                    return command
            self._gave_up.add(subgoal.place)
            subgoal = self._subgoal()
            self.thought = str(subgoal)
        return "look"  # nothing left to try: an accepted command, after which all may be tried again

    def _attempts(self, subgoal: Subgoal) -> list[str]:
        """Commands for a subgoal in the order to try them."""
        memory, verb, thing, place = self._memory, subgoal.verb, subgoal.thing, subgoal.place
        if place not in memory.here:
            return [f"go to {place}"]
        if verb in ("clean", "heat", "cool"):
            return [f"{verb} {thing} with {place}"]
        status = memory.status[place]
        maybe_closed = status == CLOSED or (status == UNSEEN and kind(place) in _openable())
        first = [f"open {place}"] if maybe_closed else []
        if verb == "find":
            return [*first, f"examine {place}"]
        if verb == "put":
            word = f"put {thing} in/on {place}" if memory.old_grammar else f"move {thing} to {place}"
            return [*first, word]
        return [*first, f"take {thing} from {place}" if verb == "take" else f"use {thing}"]


def _text(observation: Observation | str) -> str:
    return observation if isinstance(observation, str) else observation.text


@cache
def _openable() -> dict[str, float]:
    """Receptacle classes that can be closed, with the fraction that can."""
    return {k.lower(): v for k, v in stats()["openable"].items()}


def room_of(receptacles: Iterable[str]) -> str:
    """The room that has these receptacles."""
    kinds = {kind(r) for r in receptacles}
    return next((room for sign, room in _TELLTALE if sign in kinds), "living")


@cache
def _room_priors(room: str) -> dict[str, dict[str, float]]:
    """Chance of each receptacle class for a copy of each object class (lower-case names), in a room."""
    table = stats()["rooms"][room]
    places = dict(table["place"]) | {k: f["place"] for k, f in table["fixtures"].items()}
    priors = {}
    for name, counts in places.items():
        total = sum(counts.values())
        priors[name.lower()] = {k.lower(): v / total + _FLOOR for k, v in counts.items()}
    return priors
