"""Values the engine passes around: states, ground actions, and the memory of what was worked out before."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from envs.alfworld.relations import Relation, Row
from envs.alfworld.rules import Effects, Schema


class Memo(dict):
    """A dictionary that empties itself when it has `size` entries, so that long runs stay small."""

    __slots__ = ("size",)

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def keep(self, key: Hashable, value: Any) -> Any:
        """Stores a value and returns it."""
        if len(self) >= self.size:
            self.clear()
        self[key] = value
        return value


class State:
    """A situation of one game: one relation per predicate. Immutable; compares by facts."""

    __slots__ = ("_moves", "_won", "rels")

    def __init__(self, rels: tuple[Relation, ...]) -> None:
        self.rels = rels
        self._moves: Moves | None = None
        self._won: bool | None = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, State):
            return NotImplemented
        return all(a is b or a.facts == b.facts for a, b in zip(self.rels, other.rels, strict=True))

    def __reduce__(self) -> tuple:
        return State, (self.rels,)

    def __hash__(self) -> int:
        return hash(tuple(relation.facts for relation in self.rels))


class Action:
    """One ground action of a game.

    Attributes:
        schema: The schema it comes from (`schema.name` is the PDDL action).
        args: Objects of the schema's parameters.
        command: What a player types.
        effects: What it changes (see `rules.Effects`), worked out when first played.
    """

    __slots__ = ("args", "command", "effects", "schema")

    def __init__(self, schema: Schema, args: Row, command: str) -> None:
        self.schema = schema
        self.args = args
        self.command = command
        self.effects: Effects | None = None


class Moves:
    """Admissible commands, sorted, with their actions."""

    __slots__ = ("actions", "commands")

    def __init__(self, actions: list[Action]) -> None:
        unique: dict[str, Action] = {}
        for action in actions:
            unique.setdefault(action.command, action)
        self.commands = tuple(sorted(unique))
        self.actions = tuple([unique[command] for command in self.commands])
