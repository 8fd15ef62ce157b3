"""Writes one ALFWorld problem in PDDL."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from envs.alfworld.goals import goal_pddl
from envs.alfworld.layouts import Receptacle, stats

# The domain names these types whether or not the room has them.
_ALWAYS_RTYPES = ("SinkBasin", "Microwave", "Fridge")
_ALWAYS_OTYPES = ("Knife", "ButterKnife")

# The part of an id before `_bar_` is the shown class, and "basin" anywhere in it appends "basin": so a
# sink basin is written as the official games do, or it would show as "sinkbasinbasin 1".
_BASINS = {"SinkBasin": "Sink", "BathtubBasin": "Bathtub"}

_FIXTURES_TOGGLED = ("DeskLamp", "FloorLamp")
_FIXTURES = (*_FIXTURES_TOGGLED, "HousePlant", "Television")


def _ids(kinds: Sequence[str]) -> list[str]:
    """One id each: class and running number of the class, `Drawer_bar_02`."""
    seen: Counter[str] = Counter()
    ids = []
    for kind in kinds:
        seen[kind] += 1
        stem = f"{_BASINS.get(kind, kind)}_bar_{seen[kind]:02d}"
        ids.append(f"{stem}_bar_{kind}" if kind in _BASINS else stem)
    return ids


def write_problem(
    family: str,
    target: str,
    other: str,
    receptacles: Sequence[Receptacle],
    placed: Sequence[tuple[str, int, bool]],
) -> str:
    """The problem as PDDL text, the same for the same room however it was drawn.

    Args:
        family: Task family.
        target: Object class of the task.
        other: Receptacle class, or lamp class, of the task.
        receptacles: The furniture.
        placed: Objects as (class, index into `receptacles`, inside it or beside it).

    Returns:
        PDDL without comments; facts in a fixed order.
    """
    placed = sorted(placed, key=lambda p: p[0])  # stable: numbers within a class are the caller's
    r_ids = _ids([r.kind for r in receptacles])
    o_ids = _ids([kind for kind, _, _ in placed])
    numbers = {old: new for new, old in enumerate(dict.fromkeys(r.location for r in receptacles), 1)}
    at = [f"loc_bar_{numbers[r.location]:02d}" for r in receptacles]
    start = "loc_bar_00"
    rtypes = sorted({r.kind for r in receptacles} | set(_ALWAYS_RTYPES) | ({other} - set(_FIXTURES)))
    otypes = sorted({kind for kind, _, _ in placed} | set(_ALWAYS_OTYPES) | {target})

    declared = ["agent1 - agent"]
    declared += [f"{i} - object" for i in o_ids] + [f"{t}Type - otype" for t in otypes]
    declared += [f"{i} - receptacle" for i in r_ids] + [f"{t}Type - rtype" for t in rtypes]
    declared += [f"{loc} - location" for loc in sorted({start, *at})]

    facts = [f"(atLocation agent1 {start})"]
    for r_id, r, loc in zip(r_ids, receptacles, at, strict=True):
        facts += [f"(receptacleType {r_id} {r.kind}Type)", f"(receptacleAtLocation {r_id} {loc})"]
        if r.openable:
            facts.append(f"(openable {r_id})")
    for o_id, (kind, spot, inside) in zip(o_ids, placed, strict=True):
        facts += [f"(objectType {o_id} {kind}Type)", f"(objectAtLocation {o_id} {at[spot]})"]
        if inside:
            facts.append(f"(inReceptacle {o_id} {r_ids[spot]})")
        facts += [f"({p} {o_id})" for p in _properties(kind)]
    accepts = stats()["can_contain"]
    facts += [
        f"(canContain {rt}Type {ot}Type)" for rt in rtypes for ot in otypes if ot in accepts.get(rt, ())
    ]
    lines = [
        "(define (problem generated)",
        "(:domain alfred)",
        "(:objects",
        *declared,
        ")",
        "(:init",
        *facts,
        ")",
        f"(:goal {goal_pddl(family, target, other)})",
        ")",
    ]
    return "\n".join(lines) + "\n"


def _properties(kind: str) -> list[str]:
    """Unary facts of an object class."""
    if kind in _FIXTURES:
        return ["toggleable"] if kind in _FIXTURES_TOGGLED else []
    return ["pickupable", *stats()["properties"][kind]]
