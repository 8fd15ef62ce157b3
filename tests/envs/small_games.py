"""Games written for the tests: one on the packaged domain, one that brings a domain of the older style."""

from __future__ import annotations

from pathlib import Path

from envs.alfworld import Game

FIXTURES = Path(__file__).parents[1] / "fixtures" / "alfworld"


def _text(name: str) -> str:
    return (FIXTURES / name).read_text()


def kitchen(**changes: str) -> Game:
    """A kitchen on the packaged 0.4 domain; won by a hot mug in the cabinet with all doors closed."""
    fields = {
        "id": "kitchen",
        "family": "pick_heat_then_place_in_recep",
        "split": "train",
        "goal": "put a hot mug in cabinet",
        "pddl_problem": _text("kitchen.pddl"),
        "pddl_params": {"object_target": "Mug", "parent_target": "Cabinet"},
    }
    return Game(**(fields | changes))


def porch(**changes: str) -> Game:
    """A porch with its own domain and grammar, in the words of the older generation."""
    fields = {
        "id": "porch",
        "family": "pick_and_place_simple",
        "split": "train",
        "goal": "seal a box and ring",
        "pddl_problem": _text("porch_problem.pddl"),
        "pddl_domain": _text("porch_domain.pddl"),
        "grammar": _text("porch.twl2"),
    }
    return Game(**(fields | changes))


WINNING_WALK = (
    "go to drawer 1",
    "open drawer 1",
    "take mug 1 from drawer 1",
    "close drawer 1",
    "go to microwave 1",
    "heat mug 1 with microwave 1",
    "go to cabinet 1",
    "move mug 1 to cabinet 1",
)
