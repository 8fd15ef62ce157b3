"""Relations of a game state, and the numbers compiled code knows them by.

A state holds one immutable `Relation` per predicate. Objects are integers that rank their names, so sorting
rows of integers sorts rows of names.
"""

from __future__ import annotations

from dataclasses import dataclass

Row = tuple[int, ...]


class Relation:
    """The true facts of one predicate: immutable, with sorted views and indexes made when first asked."""

    __slots__ = ("_indexes", "_sorted", "facts")

    def __init__(self, facts: frozenset[Row]) -> None:
        self.facts = facts
        self._sorted: list[Row] | None = None
        self._indexes: dict[tuple[int, ...], dict[Row | int, list[Row]]] = {}

    def __reduce__(self) -> tuple:
        return Relation, (self.facts,)

    def rows(self) -> list[Row]:
        """Returns all rows, sorted."""
        if self._sorted is None:
            self._sorted = sorted(self.facts)
        return self._sorted

    def index(self, positions: tuple[int, ...]) -> dict[Row | int, list[Row]]:
        """Returns rows grouped by the values at `positions` (a bare value for one position), each sorted."""
        found = self._indexes.get(positions)
        if found is None:
            found = {}
            if len(positions) == 1:
                (position,) = positions
                for row in self.rows():
                    found.setdefault(row[position], []).append(row)
            else:
                for row in self.rows():
                    found.setdefault(tuple(row[i] for i in positions), []).append(row)
            self._indexes[positions] = found
        return found


@dataclass(frozen=True, slots=True)
class World:
    """What compiled code needs of a game besides the relations.

    Attributes:
        extents: Objects of each type number, sorted.
        members: The same as sets.
        constants: Object of each constant number.
    """

    extents: tuple[tuple[int, ...], ...]
    members: tuple[frozenset[int], ...]
    constants: tuple[int, ...]


class Vocabulary:
    """Numbers for predicates, types and constants of one domain, shared by everything compiled for it.

    `not_p` names the explicit falsehoods of `p`: facts that an effect made false since the start. Text
    grammars query them; PDDL conditions do not.
    """

    def __init__(self) -> None:
        self.predicates: dict[str, int] = {}
        self.types: dict[str, int] = {}
        self.constants: dict[str, int] = {}

    def predicate(self, name: str) -> int:
        """Returns the slot of a predicate's relation in a state."""
        return self.predicates.setdefault(name, len(self.predicates))

    def kind(self, name: str) -> int:
        """Returns the number of a type."""
        return self.types.setdefault(name, len(self.types))

    def constant(self, name: str) -> int:
        """Returns the number of a constant."""
        return self.constants.setdefault(name, len(self.constants))
