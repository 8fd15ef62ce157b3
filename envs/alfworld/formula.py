"""Logical formulas over named variables and constants."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Atom:
    """`predicate(args)`; an argument starting with `?` is a variable, any other a constant."""

    predicate: str
    args: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Equal:
    """`left = right`."""

    left: str
    right: str


@dataclass(frozen=True, slots=True)
class Not:
    """Negation of a formula."""

    part: Formula


@dataclass(frozen=True, slots=True)
class And:
    """Conjunction; empty is true."""

    parts: tuple[Formula, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Disjunction; empty is false."""

    parts: tuple[Formula, ...]


@dataclass(frozen=True, slots=True)
class Exists:
    """`exists variables: part`, variables as (name, type) pairs."""

    variables: tuple[tuple[str, str], ...]
    part: Formula


@dataclass(frozen=True, slots=True)
class Forall:
    """`for all variables: part`, variables as (name, type) pairs."""

    variables: tuple[tuple[str, str], ...]
    part: Formula


Formula = Atom | Equal | Not | And | Or | Exists | Forall


def atoms_of(formula: Formula) -> Iterator[Atom]:
    """Yields every atom of a formula, negated or not."""
    if isinstance(formula, Atom):
        yield formula
    elif isinstance(formula, And | Or):
        for part in formula.parts:
            yield from atoms_of(part)
    elif isinstance(formula, Not | Exists | Forall):
        yield from atoms_of(formula.part)


def conjuncts(formula: Formula) -> Iterator[Formula]:
    """Yields the parts whose conjunction `formula` is."""
    if isinstance(formula, And):
        for part in formula.parts:
            yield from conjuncts(part)
    else:
        yield formula


def free_variables(formula: Formula) -> set[str]:
    """Returns the variables of a formula that no quantifier inside it binds."""
    if isinstance(formula, Atom):
        return {name for name in formula.args if name.startswith("?")}
    if isinstance(formula, Equal):
        return {name for name in (formula.left, formula.right) if name.startswith("?")}
    if isinstance(formula, Not):
        return free_variables(formula.part)
    if isinstance(formula, And | Or):
        return set().union(*(free_variables(part) for part in formula.parts))
    return free_variables(formula.part) - {name for name, _ in formula.variables}


def substitute(formula: Formula, new: Mapping[str, str]) -> Formula:
    """Replaces free variables by name."""
    if isinstance(formula, Atom):
        return Atom(formula.predicate, tuple(new.get(name, name) for name in formula.args))
    if isinstance(formula, Equal):
        return Equal(new.get(formula.left, formula.left), new.get(formula.right, formula.right))
    if isinstance(formula, Not):
        return Not(substitute(formula.part, new))
    if isinstance(formula, And | Or):
        return type(formula)(tuple(substitute(part, new) for part in formula.parts))
    inner = {k: v for k, v in new.items() if k not in {name for name, _ in formula.variables}}
    return type(formula)(formula.variables, substitute(formula.part, inner))
