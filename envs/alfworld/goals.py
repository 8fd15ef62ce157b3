"""The six task families: their sentences, both ways, and their goals in PDDL."""

from __future__ import annotations

import re
from dataclasses import dataclass

from envs.alfworld.games import FAMILIES

# Receptacle class that changes the object's state.
TOOLS = {
    "pick_clean_then_place_in_recep": "SinkBasin",
    "pick_heat_then_place_in_recep": "Microwave",
    "pick_cool_then_place_in_recep": "Fridge",
}

# Two sentences per family; `other` is the receptacle class, or the lamp in the look family.
SENTENCES = {
    "pick_and_place_simple": ("put a {obj} in {other}", "put some {obj} on {other}"),
    "look_at_obj_in_light": ("look at {obj} under the {other}", "examine the {obj} with the {other}"),
    "pick_clean_then_place_in_recep": (
        "put a clean {obj} in {other}",
        "clean some {obj} and put it in {other}",
    ),
    "pick_heat_then_place_in_recep": ("put a hot {obj} in {other}", "heat some {obj} and put it in {other}"),
    "pick_cool_then_place_in_recep": ("put a cool {obj} in {other}", "cool some {obj} and put it in {other}"),
    "pick_two_obj_and_place": ("put two {obj} in {other}", "find two {obj} and put them in {other}"),
}


@dataclass(frozen=True, slots=True)
class Goal:
    """What a sentence asks for.

    Attributes:
        family: One of `FAMILIES`.
        target: Object class as shown in the text (`soapbar`).
        other: Receptacle class to put it in, or the lamp class in the look family.
        verb: `clean`, `heat`, `cool`, or "" where the object stays as it is.
        tool: Receptacle class the verb needs (`sinkbasin`), or "".
        copies: How many objects have to be placed.
    """

    family: str
    target: str
    other: str
    verb: str
    tool: str
    copies: int

    @property
    def is_look(self) -> bool:
        return self.family == "look_at_obj_in_light"


def _pattern(sentence: str) -> re.Pattern[str]:
    """A sentence as a pattern; "in" and "on" are read as one, `a` may be `an`."""
    text = re.sub(r"\b(in|on) \{other", r"(?:in|on|in/on) {other", sentence)
    text = re.sub(r"^put a ", "put an? ", text)
    return re.compile(text.format(obj=r"(?P<obj>\w+)", other=r"(?P<other>\w+)"))


# Longer forms first: "put a clean mug in ..." must not be read as the class "clean".
_PATTERNS = tuple(
    (family, _pattern(sentence))
    for family in sorted(FAMILIES, key=lambda f: f == "pick_and_place_simple")
    for sentence in SENTENCES[family]
)


def parse_goal(sentence: str) -> Goal:
    """Reads a task sentence, alone or at the end of an introduction ("Your task is to: ...").

    Raises:
        ValueError: the sentence has none of the known forms.
    """
    text = sentence.rsplit("Your task is to:", 1)[-1].strip().rstrip(".").strip().lower()
    for family, pattern in _PATTERNS:
        match = pattern.fullmatch(text)
        if match:
            verb = family.split("_")[1] if family in TOOLS else ""
            copies = 2 if family == "pick_two_obj_and_place" else 1
            tool = TOOLS.get(family, "").lower()
            return Goal(family, match["obj"], match["other"], verb, tool, copies)
    raise ValueError(f"not a task sentence of the six families: {sentence!r}")


def goal_pddl(family: str, target: str, other: str) -> str:
    """The goal as a PDDL expression.

    Args:
        family: One of `FAMILIES`.
        target: Object class (`SoapBar`).
        other: Receptacle class, or lamp class in the look family.
    """
    if family == "look_at_obj_in_light":
        return (
            "(and (exists (?lamp - object ?r - receptacle ?a - agent ?l - location)"
            f" (and (objectType ?lamp {other}Type) (toggleable ?lamp) (isToggled ?lamp)"
            " (receptacleAtLocation ?r ?l) (atLocation ?a ?l) (inReceptacle ?lamp ?r)))"
            f" (exists (?o - object ?a - agent) (and (objectType ?o {target}Type) (holds ?a ?o))))"
        )
    there = f"(receptacleType ?r {other}Type)"
    if family == "pick_two_obj_and_place":
        return (
            f"(exists (?r - receptacle) (and {there}"
            f" (exists (?o1 - object) (and (objectType ?o1 {target}Type) (inReceptacle ?o1 ?r)"
            f" (exists (?o2 - object) (and (not (= ?o1 ?o2)) (objectType ?o2 {target}Type)"
            " (inReceptacle ?o2 ?r)))))))"
        )
    state = {
        "pick_clean_then_place_in_recep": " (cleanable ?o) (isClean ?o)",
        "pick_heat_then_place_in_recep": " (heatable ?o) (isHot ?o)",
        "pick_cool_then_place_in_recep": " (coolable ?o) (isCool ?o)",
        "pick_and_place_simple": "",
    }[family]
    return (
        f"(exists (?r - receptacle) (exists (?o - object) (and (objectType ?o {target}Type)"
        f" {there}{state} (inReceptacle ?o ?r))))"
    )
