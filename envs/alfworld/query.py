"""Compiles formulas into Python expressions over the relations of a state.

A formula is compiled once per domain into one nested comprehension with index look-ups, so that a step runs
no interpreter of its own. Generated code holds only slot numbers and variables named here, never text from a
game file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from envs.alfworld.formula import (
    And,
    Atom,
    Equal,
    Exists,
    Forall,
    Formula,
    Not,
    Or,
    conjuncts,
    free_variables,
    substitute,
)
from envs.alfworld.pddl import PddlError
from envs.alfworld.relations import Row, Vocabulary


class Compiler:
    """Turns formulas into Python callables `f(relations, world, *values)`.

    Args:
        vocabulary: Numbers to compile against; grows as names are met.
        sizes: Expected number of facts per predicate; orders joins. Affects speed only.
        typed: Predicate → types of its arguments, trusted to hold of every fact.
        subtype: `subtype(a, b)`: whether type a is b or below it.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        sizes: Mapping[str, int],
        typed: Mapping[str, tuple[str, ...]],
        subtype: Callable[[str, str], bool],
    ) -> None:
        self.vocabulary = vocabulary
        self._sizes = sizes
        self._typed = typed
        self._subtype = subtype
        self._fresh = 0
        self.read: set[int] = set()

    def test(self, formula: Formula, variables: Iterable[str] = ()) -> Callable[..., bool]:
        """Compiles a condition whose free variables are `variables`, in calling order."""
        scope = {name: self._new() for name in variables}
        head = ", ".join(["rels", "world", *scope.values()])
        return _evaluate(f"lambda {head}: bool({self._expression(formula, scope)})")

    def solve(self, variables: tuple[tuple[str, str], ...], formula: Formula) -> Callable[..., Iterable[Row]]:
        """Compiles the search for every assignment of typed `variables` that satisfies `formula`.

        The callable returns the assignments without an order; they may repeat.
        """
        parts = []
        for conjunction in self._alternatives(formula, {name for name, _ in variables}):
            scope: dict[str, str] = {}
            clauses = self._join(dict(variables), conjunction, scope)
            row = "".join(f"{scope[name]}, " for name, _ in variables)
            parts.append(f"*(({row}) {clauses})" if clauses else f"({row})")
        return _evaluate(f"lambda rels, world: [{', '.join(parts)}]")

    def sequence(
        self, bound: tuple[tuple[str, str], ...], atoms: tuple[Atom, ...], kinds: Mapping[str, str]
    ) -> tuple[tuple[tuple[str, str], ...], Callable[..., list[Row]]]:
        """Compiles an ordered conjunctive query of a text grammar.

        Atoms are matched in the order written over sorted rows, and two variables never take the same object
        (bound ones included): both are how the reference answers such a query.

        Args:
            bound: (variable, type) pairs that have a value, in calling order.
            atoms: The query.
            kinds: Type of every variable of the query.

        Returns:
            The (variable, type) pairs of a result row (`bound` first), and the callable.
        """
        scope = {name: self._new() for name, _ in bound}
        arguments = ", ".join(["rels", "world", *scope.values()])
        order, clauses = list(bound), []
        for atom in atoms:
            new = [name for name in dict.fromkeys(atom.args) if name not in scope]
            clauses.append(self._scan(atom, scope))
            for name in new:
                clauses += self._guard_type(atom, name, kinds[name], scope)
                clauses += [f"if {scope[name]} != {scope[other]}" for other, _ in order]
                order.append((name, kinds[name]))
        row = "".join(f"{scope[name]}, " for name, _ in order)
        body = f"[({row}) {_clauses(clauses)}]" if atoms else f"[({row})]"
        return tuple(order), _evaluate(f"lambda {arguments}: {body}")

    def _new(self) -> str:
        self._fresh += 1
        return f"v{self._fresh}"

    def _slot(self, predicate: str) -> int:
        slot = self.vocabulary.predicate(predicate)
        self.read.add(slot)
        return slot

    def _value(self, name: str, scope: Mapping[str, str]) -> str:
        if not name.startswith("?") and name not in scope:
            return f"world.constants[{self.vocabulary.constant(name)}]"
        if name not in scope:
            raise PddlError(f"PDDL: variable {name!r} is used outside the quantifier that declares it.")
        return scope[name]

    def _expression(self, formula: Formula, scope: Mapping[str, str]) -> str:
        """Returns an expression for a formula all of whose free variables are in `scope`."""
        if isinstance(formula, Atom):
            row = "".join(f"{self._value(name, scope)}, " for name in formula.args)
            return f"(({row}) in rels[{self._slot(formula.predicate)}].facts)"
        if isinstance(formula, Equal):
            return f"({self._value(formula.left, scope)} == {self._value(formula.right, scope)})"
        if isinstance(formula, Not):
            return f"(not {self._expression(formula.part, scope)})"
        if isinstance(formula, And):
            return (
                "(" + (" and ".join(self._expression(part, scope) for part in formula.parts) or "True") + ")"
            )
        if isinstance(formula, Or):
            return (
                "(" + (" or ".join(self._expression(part, scope) for part in formula.parts) or "False") + ")"
            )
        if isinstance(formula, Forall):
            return f"(not {self._expression(Exists(formula.variables, Not(formula.part)), scope)})"
        tests = []
        for conjunction in self._alternatives(formula.part, {name for name, _ in formula.variables}):
            inner = {k: v for k, v in scope.items() if k not in dict(formula.variables)}
            clauses = self._join(dict(formula.variables), conjunction, inner)
            tests.append(f"any(True {clauses})" if clauses else "True")
        return "(" + (" or ".join(tests) or "False") + ")"

    def _alternatives(self, formula: Formula, unbound: set[str]) -> list[list[tuple[Formula, tuple]]]:
        """Splits a formula into conjunctions of (literal, quantified variables) whose union it is.

        A disjunction that only tests variables bound elsewhere is kept whole as a filter; one that must
        produce values is split. Existential variables are lifted into the conjunction.
        """
        if isinstance(formula, And):
            result: list[list[tuple[Formula, tuple]]] = [[]]
            produced = {a for p in conjuncts(formula) if isinstance(p, Atom) for a in p.args}
            for part in conjuncts(formula):
                whole = isinstance(part, Or) and not (free_variables(part) & (unbound - produced))
                options = [[(part, ())]] if whole else self._alternatives(part, unbound)
                result = [left + right for left in result for right in options]
            return result
        if isinstance(formula, Or):
            return [option for part in formula.parts for option in self._alternatives(part, unbound)]
        if isinstance(formula, Exists):
            renamed, part = self._rename(formula)
            options = self._alternatives(part, unbound | {name for name, _ in renamed})
            return [[*option, (And(()), renamed)] for option in options]
        return [[(formula, ())]]

    def _rename(self, formula: Exists) -> tuple[tuple[tuple[str, str], ...], Formula]:
        """Gives quantified variables names no other quantifier uses, so that they can share one scope."""
        new = {name: f"?{self._new()}" for name, _ in formula.variables}
        return tuple((new[name], kind) for name, kind in formula.variables), substitute(formula.part, new)

    def _join(
        self, variables: dict[str, str], parts: list[tuple[Formula, tuple]], scope: dict[str, str]
    ) -> str:
        """Returns comprehension clauses that bind `variables` and check all `parts`; extends `scope`."""
        variables = variables | {name: kind for _, lifted in parts for name, kind in lifted}
        atoms = [part for part, _ in parts if isinstance(part, Atom)]
        filters = [part for part, _ in parts if not isinstance(part, Atom) and part != And(())]
        missing, clauses = dict(variables), []
        while True:
            # Filters go in as soon as their variables are bound: what fails early saves scans.
            for part in [part for part in filters if not (free_variables(part) & missing.keys())]:
                clauses.append(f"if {self._expression(part, scope)}")
                filters.remove(part)
            if atoms:
                atom = min(atoms, key=lambda candidate: self._cost(candidate, missing))
                atoms.remove(atom)
                new = [name for name in dict.fromkeys(atom.args) if name in missing]
                clauses.append(self._scan(atom, scope, missing))
                for name in new:
                    clauses += self._guard_type(atom, name, missing.pop(name), scope)
            elif missing:  # no atom says what it may be: any object of its type
                name, kind = next(iter(missing.items()))
                del missing[name]
                scope[name] = self._new()
                clauses.append(f"for {scope[name]} in world.extents[{self.vocabulary.kind(kind)}]")
            else:
                break
        return _clauses(clauses)

    def _cost(self, atom: Atom, missing: Mapping[str, str]) -> float:
        """Estimates how many rows a scan of `atom` yields now; less than any for a plain membership test."""
        open_args = sum(name in missing for name in atom.args)
        if not open_args:
            return -1.0
        # As if facts were spread evenly: each bound argument leaves the same fraction of them.
        return self._sizes.get(atom.predicate, 0) ** (open_args / len(atom.args))

    def _scan(self, atom: Atom, scope: dict[str, str], missing: Mapping[str, str] | None = None) -> str:
        """Returns the clause that matches `atom`, binding its unbound variables in `scope`."""
        relation = f"rels[{self._slot(atom.predicate)}]"
        unbound = [name not in scope if missing is None else name in missing for name in atom.args]
        if not any(unbound):
            return f"if {self._expression(atom, scope)}"
        known = [i for i, is_open in enumerate(unbound) if not is_open]
        key = ", ".join(self._value(atom.args[i], scope) for i in known)
        targets, equalities = [], []
        for name, is_open in zip(atom.args, unbound, strict=True):
            if not is_open:
                targets.append("_")
                continue
            target = self._new()
            targets.append(target)
            if name in scope and scope[name] in targets:  # p(x, x): the second x has to equal the first
                equalities.append(f"if {target} == {scope[name]}")
            else:
                scope[name] = target
        source = f"{relation}.rows()"
        if known:
            key = key if len(known) == 1 else f"({key})"
            source = f"{relation}.index({tuple(known)!r}).get({key}, ())"
        return " ".join([f"for {''.join(f'{t}, ' for t in targets)} in {source}", *equalities])

    def _guard_type(self, atom: Atom, name: str, kind: str, scope: Mapping[str, str]) -> list[str]:
        """Returns a type check for a newly bound variable, unless the predicate's declaration implies it."""
        declared = self._typed.get(atom.predicate.removeprefix("not_"))
        if declared and self._subtype(declared[atom.args.index(name)], kind):
            return []
        return [f"if {scope[name]} in world.members[{self.vocabulary.kind(kind)}]"]


def _evaluate(source: str) -> Callable:
    try:
        return eval(source)
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise PddlError(
            f"PDDL: a condition is nested too deeply or has too many variables: {error}."
        ) from error


def _clauses(clauses: list[str]) -> str:
    """Joins comprehension clauses; Python wants a `for` in front of the first `if`."""
    start = ["for _ in (0,)"] if clauses and clauses[0].startswith("if") else []
    return " ".join([*start, *clauses])
