"""A storeroom: an environment of one's own in one file, to begin from (docs/environments.md).

    python run.py train docs/examples/storeroom.yaml

Somebody walks between shelves, drawers and a safe, and brings things where they belong. Commands are worded
as in ALFWorld, so that the shipped policy knows how to begin; that a safe wants the keychain is new to it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from configs.schema import EnvConfig
from configs.seeds import derive
from envs.base import Env, EnvError, Observation, Outcome

SPLITS = {"train": 2000, "valid": 200, "test": 200}
FAMILIES = ("bring_one", "bring_two", "lock_away")
CLOSED = ("drawer", "cabinet", "safe")
OPEN = ("shelf", "desk", "sidetable")
THINGS = ("book", "candle", "cd", "mug", "pen", "pencil", "vase", "watch")
KEY, HANDS, NOWHERE = "keychain 1", "hands", "nowhere"
NOTHING_HAPPENS = "Nothing happens."


# --- the tasks ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Errand:
    """One task: a room, where everything lies, and what is to lie where.

    Attributes:
        places: Such as `drawer 2`.
        things: (thing, place) pairs.
        wanted: Kind of thing, such as `mug`.
        target: Kind of place.
        count: How many of them.
    """

    id: str
    family: str
    split: str
    places: tuple[str, ...]
    things: tuple[tuple[str, str], ...]
    wanted: str
    target: str
    count: int

    @property
    def sentence(self) -> str:
        """The instruction."""
        many = "two" if self.count == 2 else "some"
        where = "in" if self.target in CLOSED else "on"
        return f"put {many} {self.wanted} {where} {self.target}"


def make_errand(split: str, number: int, *, seed: int, places: int) -> Errand:
    """Draws a task; it depends on these four arguments alone."""
    rng = random.Random(derive(seed, "storeroom", split, number, places))
    family = FAMILIES[number % len(FAMILIES)]
    boxes = ("drawer", "cabinet")
    more = [rng.choice(OPEN + boxes) for _ in range(places - 3)]
    kinds = [rng.choice(OPEN), rng.choice(boxes), *more, "safe"]
    names = tuple(f"{kind} {1 + kinds[:i].count(kind)}" for i, kind in enumerate(kinds))
    wanted, *others = rng.sample(THINGS, 4)
    target = "safe" if family == "lock_away" else rng.choice([kind for kind in kinds if kind != "safe"])
    count = 2 if family == "bring_two" else 1
    start = [name for name, kind in zip(names, kinds, strict=True) if kind not in ("safe", target)]
    things = [f"{wanted} {i + 1}" for i in range(count)] + [f"{other} 1" for other in others] + [KEY]
    placed = tuple((thing, rng.choice(start)) for thing in things)
    return Errand(f"storeroom/{split}/{number}", family, split, names, placed, wanted, target, count)


# --- the environment ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class State:
    """Where one stands, what is open, and where every thing is; immutable, so it is its own snapshot."""

    at: str
    opened: frozenset[str]
    where: tuple[tuple[str, str], ...]

    def things(self, place: str) -> list[str]:
        """Returns what lies at a place."""
        return [thing for thing, there in self.where if there == place]

    def moved(self, thing: str, to: str) -> State:
        """Returns the state with a thing somewhere else."""
        return replace(self, where=tuple((t, to if t == thing else there) for t, there in self.where))


@dataclass(frozen=True)
class Moment:
    """All there is to know about a trajectory at one time; nothing in it is ever changed.

    Attributes:
        effects: See `commands`.
    """

    errand: Errand
    state: State
    effects: dict[str, tuple[State, str]]
    observation: Observation
    steps: int = 0
    over: bool = False


class Storeroom(Env):
    """Plays errands.

    Args:
        max_steps: Steps after which a trajectory is truncated.
        anchor: `state`: where one stands, what is seen there and what is carried; `text`: the observation.
    """

    def __init__(self, max_steps: int, anchor: str) -> None:
        self._max_steps, self._anchor = max_steps, anchor
        self._now: Moment | None = None

    def reset(self, task: Errand, seed: int = 0) -> Observation:
        """See `Env.reset`; nothing here is left to chance, so the seed is not used."""
        state = State(NOWHERE, frozenset(), task.things)
        text = f"You are in the middle of a storeroom. Looking around you, you see {listed(task.places)}.\n\n"
        text += f"Your task is to: {task.sentence}."
        self._now, self.instruction = self._moment(task, state, text), task.sentence
        return self._now.observation

    def step(self, action: str) -> Outcome:
        """See `Env.step`."""
        if self._now is None or self._now.over:
            raise EnvError("Storeroom: step before reset, or after the end. Call reset first.")
        errand, steps = self._now.errand, self._now.steps + 1
        state, text = self._now.effects.get(action.strip(), (self._now.state, NOTHING_HAPPENS))
        there = [thing for thing, place in state.where if place.split()[0] == errand.target]
        success = sum(thing.split()[0] == errand.wanted for thing in there) >= errand.count
        truncated = not success and steps >= self._max_steps
        self._now = self._moment(errand, state, text, steps, success or truncated)
        return Outcome(
            self._now.observation, float(success), success, truncated, success, score=float(success)
        )

    def snapshot(self) -> Moment:
        """See `Env.snapshot`."""
        if self._now is None:
            raise EnvError("Storeroom: snapshot before reset. Call reset first.")
        return self._now

    def restore(self, snapshot: Moment) -> Observation:
        """See `Env.restore`."""
        if not isinstance(snapshot, Moment):
            raise EnvError(f"Storeroom: not one of its snapshots: {type(snapshot).__name__}.")
        self._now, self.instruction = snapshot, snapshot.errand.sentence
        return snapshot.observation

    def _moment(self, errand: Errand, state: State, text: str, steps: int = 0, over: bool = False) -> Moment:
        effects = dict(commands(errand, state))
        seen = look(state, state.at) if state.at != NOWHERE else ""
        anchor = text if self._anchor == "text" else f"{state.at}; {seen}; {state.things(HANDS)}"
        return Moment(errand, state, effects, Observation(text, anchor, tuple(effects)), steps, over)


def look(state: State, place: str) -> str:
    """Describes a place."""
    closable = place.split()[0] in CLOSED
    if closable and place not in state.opened:
        return f"The {place} is closed."
    return f"{'In' if closable else 'On'} the {place}, you see {listed(state.things(place))}."


def listed(names: Sequence[str]) -> str:
    """Returns `a mug 1, a pen 1, and a cd 1`."""
    if not names:
        return "nothing"
    *first, last = (f"a {name}" for name in names)
    return ", ".join([*first, f"and {last}"]) if first else last


def commands(errand: Errand, state: State) -> Iterator[tuple[str, tuple[State, str]]]:
    """Yields every command that is accepted in a state, with the state it leads to and what is said then."""
    here = state.at
    for place in errand.places:
        if place != here:
            yield f"go to {place}", (replace(state, at=place), f"You arrive at {place}. {look(state, place)}")
    if here == NOWHERE:
        return
    if here.split()[0] in CLOSED and here not in state.opened:
        if here.split()[0] != "safe" or KEY in state.things(HANDS):
            opened = replace(state, opened=state.opened | {here})
            yield f"open {here}", (opened, f"You open the {here}. {look(opened, here)}")
        return
    for thing in state.things(here):
        yield (
            f"take {thing} from {here}",
            (state.moved(thing, HANDS), f"You pick up the {thing} from the {here}."),
        )
    for thing in state.things(HANDS):
        yield f"move {thing} to {here}", (state.moved(thing, here), f"You move the {thing} to the {here}.")


# --- the world: what the configuration names ---------------------------------------------------------------


class StoreroomWorld:
    """Errands in seeded splits.

    Args:
        env: The section `env` of the configuration.
        places: Places in a room, the safe among them (`env.options.places`).
    """

    splits = tuple(SPLITS)

    def __init__(self, env: EnvConfig, *, places: int = 6) -> None:
        if not 3 <= places <= 20:
            raise EnvError(f"env.options.places must be between 3 and 20, got {places!r}.")
        self._env, self._places = env, places

    def tasks(self, split: str) -> list[Errand]:
        """Returns all tasks of a split."""
        seed, places = self._env.data_seed, self._places
        return [make_errand(split, i, seed=seed, places=places) for i in range(SPLITS[split])]

    def make_env(self) -> Storeroom:
        """Makes an environment."""
        return Storeroom(self._env.max_steps, self._env.anchor)
