"""Reader for the PDDL a game brings: domain, problem, formulas, effects.

Covers what ALFWorld domains and problems use (typed ADL: and/or/not/imply/exists/forall/=, conditional and
universal effects, action costs, which are read and ignored). Anything else is refused by name, so that a
domain is never half understood. Symbols are case-insensitive in PDDL and come out in lower case.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from envs.alfworld.formula import And, Atom, Equal, Exists, Forall, Formula, Not, Or, atoms_of
from envs.base import EnvError

ROOT_TYPE = "object"
_TOKEN = re.compile(r"[()]|[^\s()]+")
_COMMENT = re.compile(r";[^\n]*")
_CONDITION_KINDS = ("negative", "disjunctive", "existential", "universal", "quantified")
_REQUIREMENTS = {
    *(":strips", ":typing", ":adl", ":action-costs", ":equality", ":conditional-effects"),
    *(f":{kind}-preconditions" for kind in _CONDITION_KINDS),
}


_ALWAYS = And(())


class PddlError(EnvError):
    """A PDDL text is malformed or uses a construct the engine does not implement."""


@dataclass(frozen=True, slots=True)
class Effect:
    """One literal an action makes true or false.

    Attributes:
        atom: The literal's atom.
        adds: True to add the atom, False to delete it.
        condition: Must hold before the action for the effect to happen (`And(())` when unconditional).
        variables: Universally quantified (name, type) pairs the effect ranges over.
    """

    atom: Atom
    adds: bool
    condition: Formula
    variables: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Schema:
    """An action schema; `parameters` are (name, type) pairs, names with their `?`."""

    name: str
    parameters: tuple[tuple[str, str], ...]
    precondition: Formula
    effects: tuple[Effect, ...]


@dataclass(frozen=True)
class Domain:
    """A planning domain.

    Attributes:
        types: Type → its parent (`object` at the root).
        constants: Object → type, for objects the domain itself declares.
        predicates: Predicate → types of its arguments.
        actions: Schemas in the order written.
    """

    types: dict[str, str]
    constants: dict[str, str]
    predicates: dict[str, tuple[str, ...]]
    actions: tuple[Schema, ...]

    def check(self, formula: Formula, where: str) -> None:
        """Checks that every atom of a formula is of a declared predicate and has its number of arguments.

        Raises:
            PddlError: names the atom and `where` it stands.
        """
        for atom in atoms_of(formula):
            types = self.predicates.get(atom.predicate)
            if types is None or len(types) != len(atom.args):
                raise PddlError(f"PDDL {where}: {atom.predicate} {atom.args} fits no declared predicate.")

    def supertypes(self, kind: str) -> tuple[str, ...]:
        """Returns `kind` and its ancestors, nearest first; the root type is an ancestor of all.

        Raises:
            PddlError: a type is not declared, or is its own ancestor.
        """
        chain = [kind]
        while chain[-1] != ROOT_TYPE:
            parent = self.types.get(chain[-1])
            if parent is None:
                raise PddlError(f"PDDL: type {chain[-1]!r} is not declared; declared: {sorted(self.types)}.")
            if parent in chain:
                raise PddlError(f"PDDL: type {kind!r} is its own ancestor.")
            chain.append(parent)
        return tuple(chain)


@dataclass(frozen=True)
class Problem:
    """One instance of a domain: objects (name → type), initial facts, goal."""

    objects: dict[str, str]
    init: tuple[tuple[str, ...], ...] = field(repr=False)
    goal: Formula


def read_expression(text: str) -> list:
    """Reads one parenthesised expression into nested lists of lower-case symbols.

    Raises:
        PddlError: the parentheses do not match or text follows the expression.
    """
    stack: list[list] = [[]]
    for token in _TOKEN.findall(_COMMENT.sub("", text).lower()):
        if token == "(":
            stack.append([])
        elif token == ")":
            if len(stack) == 1:
                raise PddlError("PDDL: a ')' closes nothing; check the parentheses.")
            done = stack.pop()
            stack[-1].append(done)
        else:
            stack[-1].append(token)
    if len(stack) != 1 or len(stack[0]) != 1 or not isinstance(stack[0][0], list):
        raise PddlError(
            f"PDDL: expected one '(define …)', got {len(stack[0])} parts, {len(stack) - 1} left open."
        )
    return stack[0][0]


def typed_list(items: list, default: str = ROOT_TYPE) -> tuple[tuple[str, str], ...]:
    """Reads `a b - t c` into (name, type) pairs.

    Punctuation belongs to the name: the packaged domain writes `?l - location, ?r - receptacle`, which in
    PDDL is a type called `location,` that no object has. The reference reads it so (an object that is not
    held cannot be examined), hence this reader must not repair it.
    """
    pairs: list[tuple[str, str]] = []
    pending: list[str] = []
    position = 0
    while position < len(items):
        item = items[position]
        if item == "-":
            kind = items[position + 1] if position + 1 < len(items) else None
            if not isinstance(kind, str):
                raise PddlError(f"PDDL: unsupported type {kind!r} in a typed list (only plain type names).")
            pairs += [(name, kind) for name in pending]
            pending = []
            position += 2
            continue
        if not isinstance(item, str):
            raise PddlError(f"PDDL: expected a name in a typed list, got {item!r}.")
        pending.append(item)
        position += 1
    return tuple(pairs + [(name, default) for name in pending])


def read_formula(node: list) -> Formula:
    """Reads a condition.

    Raises:
        PddlError: for a construct that is not implemented, named in the message.
    """
    if not node:
        return And(())
    head, rest = node[0], node[1:]
    if head == "and":
        return And(tuple(read_formula(part) for part in rest))
    if head == "or":
        return Or(tuple(read_formula(part) for part in rest))
    if head == "not":
        return Not(read_formula(rest[0]))
    if head == "imply":
        return Or((Not(read_formula(rest[0])), read_formula(rest[1])))
    if head == "exists":
        return Exists(typed_list(rest[0]), read_formula(rest[1]))
    if head == "forall":
        return Forall(typed_list(rest[0]), read_formula(rest[1]))
    if head == "=":
        return Equal(rest[0], rest[1])
    if not isinstance(head, str) or head in ("<", ">", "<=", ">=", "when", "preference") or not _flat(rest):
        raise PddlError(f"PDDL: unsupported condition {node!r}.")
    return Atom(head, tuple(rest))


def _flat(items: list) -> bool:
    return all(isinstance(item, str) for item in items)


def read_effects(node: list, condition: Formula = _ALWAYS, variables: tuple = ()) -> Iterator[Effect]:
    """Yields the literals of an effect expression, deletes and adds in the order written."""
    if not node:
        return
    head, rest = node[0], node[1:]
    if head == "and":
        for part in rest:
            yield from read_effects(part, condition, variables)
    elif head == "when":
        yield from read_effects(rest[1], And((condition, read_formula(rest[0]))), variables)
    elif head == "forall":
        yield from read_effects(rest[1], condition, variables + typed_list(rest[0]))
    elif head == "increase":
        return  # Costs guide planners; the game never shows them.
    else:
        adds = head != "not"
        literal = node if adds else rest[0]
        atom = read_formula(literal)
        if not isinstance(atom, Atom) or head in ("assign", "decrease", "scale-up", "scale-down", "oneof"):
            raise PddlError(f"PDDL: unsupported effect {node!r}.")
        yield Effect(atom, adds, condition, variables)


@contextmanager
def _reading(what: str) -> Iterator[None]:
    """Turns what goes wrong inside on an expression of the wrong shape into a `PddlError`."""
    try:
        yield
    except (IndexError, KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise PddlError(f"PDDL {what}: malformed ({type(error).__name__}: {error}).") from error


@_reading("domain")
def read_domain(text: str) -> Domain:
    """Reads a `(define (domain …) …)`.

    Raises:
        PddlError: malformed, or a section or requirement that is not implemented.
    """
    types: dict[str, str] = {}
    constants: dict[str, str] = {}
    predicates: dict[str, tuple[str, ...]] = {}
    actions: list[Schema] = []
    for section in read_expression(text)[2:]:
        head, rest = section[0], section[1:]
        if head == ":types":
            types.update(pair for pair in typed_list(rest) if pair[0] != ROOT_TYPE)
        elif head == ":constants":
            constants.update(typed_list(rest))
        elif head == ":predicates":
            predicates.update({row[0]: tuple(kind for _, kind in typed_list(row[1:])) for row in rest})
        elif head == ":action":
            actions.append(_read_action(rest))
        elif head == ":requirements":
            unknown = [item for item in rest if item not in _REQUIREMENTS]
            if unknown:
                raise PddlError(f"PDDL domain: unsupported requirement {unknown[0]!r}.")
        elif head != ":functions":
            raise PddlError(f"PDDL domain: unsupported section {head!r}.")
    return Domain(types, constants, predicates, tuple(actions))


def _read_action(body: list) -> Schema:
    name, pairs = body[0], dict(zip(body[1::2], body[2::2], strict=True))
    unknown = sorted(set(pairs) - {":parameters", ":precondition", ":effect"})
    if unknown:
        raise PddlError(f"PDDL action {name!r}: unsupported part {unknown[0]!r}.")
    return Schema(
        name=name,
        parameters=typed_list(pairs.get(":parameters", [])),
        precondition=read_formula(pairs.get(":precondition", [])),
        effects=tuple(read_effects(pairs.get(":effect", []))),
    )


@_reading("problem")
def read_problem(text: str) -> Problem:
    """Reads a `(define (problem …) …)`; initial function values (`(= (distance …) 3)`) are ignored.

    Raises:
        PddlError: malformed, no goal, or a section that is not implemented.
    """
    objects: dict[str, str] = {}
    init: list[tuple[str, ...]] = []
    goal: Formula | None = None
    for section in read_expression(text)[2:]:
        head, rest = section[0], section[1:]
        if head == ":objects":
            objects.update(typed_list(rest))
        elif head == ":init":
            init += [tuple(fact) for fact in rest if fact[0] != "="]
        elif head == ":goal":
            goal = read_formula(rest[0])
        elif head not in (":domain", ":metric", ":requirements"):
            raise PddlError(f"PDDL problem: unsupported section {head!r}.")
    if goal is None:
        raise PddlError("PDDL problem: no (:goal …).")
    for fact in init:
        if fact[0] == "not" or not _flat(list(fact)):
            raise PddlError(f"PDDL problem: unsupported initial fact {fact!r}.")
    return Problem(objects, tuple(init), goal)
