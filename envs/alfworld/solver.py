"""An all-knowing solver: the shortest way to win, from any state of a game of the six families.

It plans on the facts of a state (not through the engine's search): every choice of copy, order and
receptacle is written out as a walk, and the shortest is returned. Used to prove that a generated game can be
won, and to measure how far a state is from success. It is no teacher: it never has to search for anything.
Its commands are those of the packaged grammar of 0.4 ("move x to y").
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import permutations

from envs.alfworld.engine import CompiledGame, State, compile_game
from envs.alfworld.games import Game
from envs.alfworld.goals import TOOLS
from envs.base import EnvError

_CHANGES = {"clean": "isclean", "heat": "ishot", "cool": "iscool"}


@dataclass
class _World:
    """Facts of one state, by shown name."""

    location: dict[str, str]  # of receptacles
    kind: dict[str, str]  # receptacle or object → class, lower case
    inside: list[tuple[str, str]]  # (object, receptacle)
    openable: set[str]
    opened: set[str]
    accepts: set[tuple[str, str]]  # (receptacle class, object class)
    pickable: set[str]
    toggleable: set[str]
    changed: set[tuple[str, str]]  # (fact name, object)
    held: str
    at: str  # the agent's location

    def of_kind(self, name: str) -> list[str]:
        """Receptacles of a class."""
        return [r for r in self.location if self.kind[r] == name]

    def copies(self, name: str) -> list[tuple[str, str]]:
        """Objects of a class that can be picked up, each with a receptacle it is in."""
        return [(o, r) for o, r in self.inside if self.kind[o] == name and o in self.pickable]


@dataclass
class _Walk:
    """Commands so far, and those of their effects that matter to the next ones."""

    world: _World
    at: str
    opened: frozenset[str]
    commands: list[str] = field(default_factory=list)

    def go(self, place: str, *, inside: bool = True) -> _Walk:
        """Extends the walk to `place`, opened if its inside is needed."""
        commands = list(self.commands)
        if self.world.location[place] != self.at:
            commands.append(f"go to {place}")
        opened = self.opened
        if inside and place in self.world.openable and place not in opened:
            commands.append(f"open {place}")
            opened = opened | {place}
        return replace(self, at=self.world.location[place], opened=opened, commands=commands)

    def do(self, command: str) -> _Walk:
        return replace(self, commands=[*self.commands, command])

    def take(self, thing: str, place: str) -> _Walk:
        return self.go(place).do(f"take {thing} from {place}")

    def put(self, thing: str, place: str) -> _Walk:
        return self.go(place).do(f"move {thing} to {place}")


def solve(game: Game, state: State | None = None) -> list[str]:
    """Shortest winning commands, checked by playing them on the engine.

    Args:
        game: A game of the six families.
        state: Where to start; default the start of the game. `len(solve(game, state))` is the number of
            steps left.

    Returns:
        Commands; empty if `state` is won already.

    Raises:
        EnvError: the game is won before its first step, cannot be won, or is not of the six families.
    """
    compiled = compile_game(game)
    now = compiled.initial if state is None else state
    if compiled.won(now):
        if state is None:
            raise EnvError(f"game {game.id} is won before its first step")
        return []
    params = game.pddl_params
    other = params["parent_target"] or params["toggle_target"]
    world = _read_world(compiled, now)
    commands = _plan(world, game.family, params["object_target"].lower(), other.lower())
    for command in commands:
        now, _ = compiled.step(now, command)
    if not compiled.won(now):
        raise EnvError(f"game {game.id} was not won by its plan {commands}")
    return commands


def _read_world(compiled: CompiledGame, state: State) -> _World:
    """The facts of a state that matter to a plan."""
    name = {entity.id: entity.name for entity in compiled.entities}

    def rows(predicate: str) -> list[tuple[str, ...]]:
        return compiled.facts(state, predicate)

    def things(predicate: str) -> set[str]:
        return {name[row[0]] for row in rows(predicate)}

    def types(predicate: str) -> dict[str, str]:
        return {name[thing]: kind.removesuffix("type") for thing, kind in rows(predicate)}

    held = [name[thing] for _, thing in rows("holds")]
    return _World(
        location={name[place]: location for place, location in rows("receptacleatlocation")},
        kind=types("objecttype") | types("receptacletype"),
        inside=[(name[thing], name[place]) for thing, place in rows("inreceptacle")],
        openable=things("openable"),
        opened=things("opened"),
        accepts={(r.removesuffix("type"), o.removesuffix("type")) for r, o in rows("cancontain")},
        pickable=things("pickupable"),
        toggleable=things("toggleable"),
        changed={(p, thing) for p in (*_CHANGES.values(), "istoggled") for thing in things(p)},
        held=held[0] if held else "",
        at=rows("atlocation")[0][1],
    )


def _plan(world: _World, family: str, target: str, other: str) -> list[str]:
    """The shortest plan; classes in lower case.

    Raises:
        EnvError: there is none.
    """
    if family == "pick_two_obj_and_place":
        walks = _two(world, target, other)
    elif family == "look_at_obj_in_light":
        walks = _look(world, target, other)
    else:
        verb = family.split("_")[1] if family in TOOLS else ""
        walks = _one(world, target, other, verb, TOOLS.get(family, "").lower())
    best = min(walks, key=lambda w: len(w.commands), default=None)
    if best is None:
        raise EnvError(f"no way to win: {family} {target} {other}")
    return best.commands


def _free_hands(world: _World) -> list[_Walk]:
    """Shortest ways to empty hands."""
    start = _Walk(world, world.at, frozenset(world.opened))
    if not world.held:
        return [start]
    accepting = [r for r in world.location if (world.kind[r], world.kind[world.held]) in world.accepts]
    walks = [start.put(world.held, r) for r in accepting]
    shortest = min((len(w.commands) for w in walks), default=0)
    return [w for w in walks if len(w.commands) == shortest]


def _in_hand(world: _World, target: str) -> Iterator[tuple[_Walk, str]]:
    """Ways to hold a copy of the target."""
    if world.held and world.kind[world.held] == target:
        yield _Walk(world, world.at, frozenset(world.opened)), world.held
        return
    for walk in _free_hands(world):
        for thing, place in world.copies(target):
            yield walk.take(thing, place), thing


def _one(world: _World, target: str, other: str, verb: str, tool: str) -> Iterator[_Walk]:
    for walk, thing in _in_hand(world, target):
        ready = [walk]
        if verb and (_CHANGES[verb], thing) not in world.changed:
            ready = [walk.go(t, inside=False).do(f"{verb} {thing} with {t}") for t in world.of_kind(tool)]
        for ready_walk in ready:
            for place in world.of_kind(other):
                yield ready_walk.put(thing, place)


def _look(world: _World, target: str, other: str) -> Iterator[_Walk]:
    for walk, _ in _in_hand(world, target):
        for lamp, place in world.inside:
            if lamp in world.toggleable and world.kind[lamp] == other:
                there = walk.go(place, inside=False)
                yield there if ("istoggled", lamp) in world.changed else there.do(f"use {lamp}")


def _two(world: _World, target: str, other: str) -> Iterator[_Walk]:
    copies = world.copies(target)
    holding = bool(world.held) and world.kind[world.held] == target
    for goal in world.of_kind(other):
        missing = 2 - len({thing for thing, place in copies if place == goal})
        starts = _free_hands(world)
        if holding:  # what is held fills the goal first: putting it anywhere else only costs steps
            starts = [_Walk(world, world.at, frozenset(world.opened)).put(world.held, goal)]
            missing -= 1
        elsewhere = [(thing, place) for thing, place in copies if place != goal]
        for walk in starts:
            for order in permutations(elsewhere, max(missing, 0)):
                end = walk
                for thing, place in order:
                    end = end.take(thing, place).put(thing, goal)
                yield end
