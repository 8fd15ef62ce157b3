"""Seeded ALFWorld games written from measured statistics, without ALFRED's files.

A game is a task (family, object, receptacle), a room from `layouts.py`, and objects put where the official
games mostly have them. Ids are numbered without gaps, so the text of a problem is a canonical form
of what a player can see; its digest names the game and decides which split may hold it. That makes
`train`, `valid_seen` and `valid_unseen` disjoint by construction, whatever the seeds and sizes.

Departures from the official games: no fixture that cannot be seen from a receptacle (windows, chairs,
stove knobs, ...), no object in two receptacles at once, no object cold from the start.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from envs.alfworld.games import Game
from envs.alfworld.goals import FAMILIES, SENTENCES, TOOLS
from envs.alfworld.layouts import Layout, Receptacle, draw, draw_count, layout, layout_indices, stats
from envs.alfworld.problem import write_problem
from envs.alfworld.solver import solve
from envs.base import EnvError

SPLITS = ("train", "valid_seen", "valid_unseen")

# A digest's remainder by 8 decides the split: 0 valid_seen, 1 valid_unseen, the rest train.
_PARTS = 8

# Objects at difficulty 0, besides the copies of the target.
_FEWEST_OBJECTS = 6

# Copies of the target are in closed receptacles less often than other objects of the class (15 % of them
# against 24 %): weight of the classes that can be closed.
_TARGET_CLOSED = 0.55

_LAMP = "DeskLamp"
_Placed = tuple[str, int, bool]  # class, index of the receptacle, whether inside it (else beside it)

# How many rooms are drawn for one task before another task is drawn, and how many tasks before giving up.
# A rare receptacle is in one room of ten, and one problem of eight belongs to a validation split.
_ROOM_TRIES = 200
_TASK_TRIES = 20


@dataclass(frozen=True, slots=True)
class _Task:
    """What is asked; `goal` is the receptacle class to fill ("" in the look family)."""

    family: str
    room: str
    target: str
    goal: str

    @property
    def copies_needed(self) -> int:
        """Copies of the target the task cannot do without."""
        return 2 if self.family == "pick_two_obj_and_place" else 1

    @property
    def tool(self) -> str:
        """Receptacle class that cleans, heats or cools, or ""."""
        return TOOLS.get(self.family, "")

    @property
    def untouched_goal(self) -> bool:
        """Whether no copy may start in a receptacle of the goal's class (measured: these two families)."""
        return self.family in ("pick_and_place_simple", "pick_two_obj_and_place")


def official_proportions() -> dict[str, int]:
    """Number of official solvable train games of each family; the default mix."""
    return {family: stats()["families"][family]["games"] for family in FAMILIES}


def generate_games(
    split: str,
    n: int,
    *,
    seed: int,
    difficulty: float = 1.0,
    families: Iterable[str] | Mapping[str, float] | None = None,
) -> list[Game]:
    """Makes `n` different games, each solved once by the all-knowing solver on the engine.

    Args:
        split: `train`, `valid_seen` (training rooms, other games) or `valid_unseen` (rooms of their own).
        n: Number of games.
        seed: Same arguments, same games, byte for byte; more games start with the same ones.
        difficulty: 0 (5 to 7 receptacles, few objects) to 1 (full size).
        families: A mapping to weights, or names in proportions of the official train split. Default: all.

    Returns:
        Games with unique ids `split/family-Object-Receptacle-layout-digest`. A game takes one core 3 ms at
        difficulty 0 and 5 ms at 1 (validation splits up to 11), most of it to compile and to check it.

    Raises:
        ValueError: an argument out of range, or an unknown family or split.
        EnvError: a game came out unsolvable or the rooms are exhausted (a defect).
    """
    if not 0.0 <= difficulty <= 1.0:
        raise ValueError(f"difficulty must be in [0, 1], got {difficulty}")
    difficulty = float(difficulty)  # 1 and 1.0 are one difficulty, so one seed
    layout_indices(split)
    weights = _family_weights(families)
    rng = random.Random(f"alfworld games {split} {seed} {difficulty!r} {sorted(weights.items())}")
    games: dict[str, Game] = {}
    for _ in range(n):
        game = _draw_game(rng, split, difficulty, draw(rng, weights), games)
        solve(game)  # raises where a game cannot be won
        games[game.id] = game
    return list(games.values())


def _family_weights(families: Iterable[str] | Mapping[str, float] | None) -> dict[str, float]:
    official = official_proportions()
    if families is None:
        return dict(official)
    chosen = dict(families) if isinstance(families, Mapping) else {f: official.get(f, 0) for f in families}
    unknown = sorted(set(chosen) - set(official))
    if unknown or not chosen:
        raise ValueError(f"unknown families {unknown}; known: {sorted(official)}")
    return chosen


def _draw_game(
    rng: random.Random, split: str, difficulty: float, family: str, known: Mapping[str, Game]
) -> Game:
    """A game of a family that is not among the known ones."""
    for _ in range(_TASK_TRIES):
        task = _draw_task(rng, family)
        for _ in range(_ROOM_TRIES):
            game = _furnish(rng, split, difficulty, task)
            if game is not None and game.id not in known:
                return game
    tries = _TASK_TRIES * _ROOM_TRIES
    raise EnvError(f"no new {split} game of {family} in {tries} tries ({len(known)} made)")


def _furnish(rng: random.Random, split: str, difficulty: float, task: _Task) -> Game | None:
    """One candidate, or None where chance gave a room without what the task needs or another split's game."""
    room = layout(task.room, rng.choice(layout_indices(split)))
    needed = _needed_kinds(rng, task, room)
    if needed is None:
        return None
    receptacles = room.shrunk(difficulty, needed)
    placed = _place_target(rng, task, receptacles)
    if len(placed) < task.copies_needed:
        return None
    placed += _place_others(rng, task, receptacles, difficulty)
    if not task.goal and not any(kind == _LAMP for kind, _, _ in placed):
        places = stats()["rooms"][task.room]["fixtures"][_LAMP]["place"]
        placed.append((_LAMP, _spot(rng, places, receptacles), True))
    rng.shuffle(placed)  # otherwise an object's number would reveal where it is
    return _finish(split, task, room, receptacles, placed)


def _draw_task(rng: random.Random, family: str) -> _Task:
    rooms = stats()["families"][family]["rooms"]
    room = draw(rng, {r: rooms[r]["games"] for r in rooms})
    target = draw(rng, rooms[room]["objects"])
    if family == "look_at_obj_in_light":
        return _Task(family, room, target, "")
    accepts = stats()["can_contain"]
    goals = {g: w for g, w in rooms[room]["receptacles"].items() if target in accepts[g]}
    return _Task(family, room, target, draw(rng, goals))


def _needed_kinds(rng: random.Random, task: _Task, room: Layout) -> list[str] | None:
    """Receptacle classes this task cannot do without, or None if the room lacks one."""
    table = stats()["rooms"][task.room]
    sources = {
        k: w
        for k, w in table["place"][task.target].items()
        if k in room.kinds and not (task.untouched_goal and k == task.goal)
    }
    if not sources:
        return None
    needed = [k for k in (task.goal, task.tool) if k] + [draw(rng, sources)]
    if not task.goal:
        lamp = {k: w for k, w in table["fixtures"][_LAMP]["place"].items() if k in room.kinds}
        if not lamp:
            return None
        needed.append(draw(rng, lamp))
    return needed if set(needed) <= room.kinds else None


def _spot(rng: random.Random, weights: Mapping[str, float], receptacles: list[Receptacle]) -> int | None:
    """Index of a receptacle drawn by class weights among those present, or None if no class is."""
    present = {r.kind for r in receptacles}
    usable = {k: w for k, w in weights.items() if k in present}
    if not usable:
        return None
    kind = draw(rng, usable)
    return rng.choice([i for i, r in enumerate(receptacles) if r.kind == kind])


def _place_target(rng: random.Random, task: _Task, receptacles: list[Receptacle]) -> list[_Placed]:
    """Copies of the target; more copies in the pick-two family, never already where the goal wants them."""
    histogram = stats()["copies"]["two" if task.copies_needed == 2 else "one"]
    weights = dict(stats()["rooms"][task.room]["place"][task.target])
    if task.untouched_goal:
        weights.pop(task.goal, None)
    weights.pop("none", None)
    for kind in weights.keys() & stats()["openable"].keys():
        weights[kind] *= _TARGET_CLOSED
    spots = [_spot(rng, weights, receptacles) for _ in range(draw_count(rng, histogram))]
    return [(task.target, spot, True) for spot in spots if spot is not None]


def _place_others(
    rng: random.Random, task: _Task, receptacles: list[Receptacle], difficulty: float
) -> list[_Placed]:
    """Everything else in the room: pickable objects of other classes, lamps, plants, televisions."""
    table = stats()["rooms"][task.room]
    copies = [
        kind
        for kind, histogram in table["objects"].items()
        if kind != task.target
        for _ in range(draw_count(rng, histogram))
    ]
    rng.shuffle(copies)
    fewest = min(_FEWEST_OBJECTS, len(copies))
    copies = copies[: round(fewest + difficulty * (len(copies) - fewest))]
    placed: list[_Placed] = []
    for kind in copies:
        weights = table["place"][kind]
        beside = rng.random() * sum(weights.values()) < weights.get("none", 0)
        spot = rng.randrange(len(receptacles)) if beside else _spot(rng, weights, receptacles)
        if spot is not None:
            placed.append((kind, spot, not beside))
    for kind, fixture in table["fixtures"].items():
        for _ in range(draw_count(rng, fixture["count"])):
            spot = _spot(rng, fixture["place"], receptacles)
            if spot is not None:
                placed.append((kind, spot, True))
    return placed


def _finish(
    split: str, task: _Task, room: Layout, receptacles: list[Receptacle], placed: list[_Placed]
) -> Game | None:
    """Writes the problem; None where its digest belongs to another split."""
    other = task.goal or _LAMP
    problem = write_problem(task.family, task.target, other, receptacles, placed)
    digest = hashlib.sha256(problem.encode()).hexdigest()
    part = {0: "valid_seen", 1: "valid_unseen"}.get(int(digest, 16) % _PARTS, "train")
    if part != split:
        return None
    sentence = SENTENCES[task.family][int(digest, 16) // _PARTS % 2]
    params: dict[str, Any] = {
        "object_target": task.target,
        "parent_target": task.goal,
        "toggle_target": "" if task.goal else _LAMP,
        "mrecep_target": "",
        "object_sliced": False,
    }
    return Game(
        id=f"{split}/{task.family}-{task.target}-{other}-{room.key}-{digest[:12]}",
        family=task.family,
        split=split,
        goal=sentence.format(obj=task.target.lower(), other=other.lower()),
        pddl_problem=problem,
        pddl_params=params,
    )


def summary(games: Iterable[Game]) -> dict[str, Any]:
    """Counts over games, for printing.

    Returns:
        `games`, `families` and `rooms` (name → games), and the means per game of `receptacles`, `openable`,
        `shared` (receptacles sharing a location), `objects` and `copies` (of the target class).
    """
    total: Counter[str] = Counter()
    families: Counter[str] = Counter()
    rooms: Counter[str] = Counter()
    for game in games:
        families[game.family] += 1
        rooms[_room_of(game)] += 1
        lines = game.pddl_problem.splitlines()
        facts = Counter(line.split(" ")[0] for line in lines)
        at = Counter(line.split()[-1] for line in lines if line.startswith("(receptacleAtLocation"))
        target = f" {game.pddl_params['object_target']}Type)"
        total["receptacles"] += facts["(receptacleType"]
        total["openable"] += facts["(openable"]
        total["shared"] += sum(k for k in at.values() if k > 1)
        total["objects"] += facts["(objectType"]
        total["copies"] += sum(line.startswith("(objectType") and line.endswith(target) for line in lines)
    means = {f"mean {k}": round(v / families.total(), 2) for k, v in total.items()}
    return {"games": families.total(), "families": dict(families), "rooms": dict(rooms), **means}


def _room_of(game: Game) -> str:
    """Room of a generated game, from the layout key in its id."""
    prefix = game.id.rsplit("-", 2)[1][:2]
    return {"ki": "kitchen", "li": "living", "be": "bedroom", "ba": "bathroom"}[prefix]
