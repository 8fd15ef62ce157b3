"""A domain and a text grammar compiled together, independent of any game."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from operator import itemgetter
from typing import Any

from envs.alfworld import pddl
from envs.alfworld.formula import And, Atom, Equal, Exists, Formula, Not, Or, atoms_of, conjuncts, substitute
from envs.alfworld.grammar import Call, Grammar, GrammarError
from envs.alfworld.pddl import Domain, PddlError
from envs.alfworld.query import Compiler
from envs.alfworld.relations import Row, Vocabulary, World
from envs.alfworld.text import TextCompiler

# Facts per predicate at the start of an average official game; orders joins, never changes a result.
_TYPICAL_SIZES = {
    "cancontain": 161, "objecttype": 36, "objectatlocation": 36, "pickupable": 26, "inreceptacle": 26,
    "receptacletype": 19, "receptacleatlocation": 19, "cleanable": 10, "openable": 8, "coolable": 6,
    "heatable": 4, "isreceptacleobject": 4, "sliceable": 3, "atlocation": 1, "toggleable": 1,
}  # fmt: skip

# (slot, facts made true, facts made false)
Change = tuple[int, frozenset[Row], frozenset[Row]]
# What always happens, and (condition, values it is tested on, what happens if it held before).
Effects = tuple[tuple[Change, ...], tuple[tuple[Callable[..., bool], Row, tuple[Change, ...]], ...]]


def key_of(slots: Iterable[int]) -> Callable[[tuple], Any]:
    """Returns a function that picks the relations of `slots`, to serve as a memo key."""
    ordered = sorted(slots)
    return itemgetter(*ordered) if ordered else lambda rels: None


class Pattern:
    """An atom over an action's variables and constants, filled in for given values."""

    __slots__ = ("parts", "slot")

    def __init__(self, atom: Atom, names: list[str], vocabulary: Vocabulary) -> None:
        unknown = [name for name in atom.args if name.startswith("?") and name not in names]
        if unknown:
            raise PddlError(f"PDDL: variable {unknown[0]!r} of {atom.predicate!r} is not declared.")
        self.slot = vocabulary.predicate(atom.predicate)
        self.parts = tuple(
            (True, names.index(name)) if name in names else (False, vocabulary.constant(name))
            for name in atom.args
        )

    def fill(self, values: Row, world: World) -> Row:
        """Returns the fact for the values of the variables."""
        return tuple([values[i] if variable else world.constants[i] for variable, i in self.parts])


class _Effect:
    """A compiled effect literal."""

    def __init__(self, effect: pddl.Effect, parameters: list[str], rules: Rules) -> None:
        names = [*parameters, *(name for name, _ in effect.variables)]
        self.pattern = Pattern(effect.atom, names, rules.vocabulary)
        self.adds = effect.adds
        self._kinds = [rules.vocabulary.kind(kind) for _, kind in effect.variables]
        self.condition = None if effect.condition == And(()) else rules.compiler.test(effect.condition, names)

    def instances(self, row: Row, world: World) -> Iterator[Row]:
        """Yields the values of all variables, once for each object a `forall` ranges over."""
        for extra in product(*(world.extents[kind] for kind in self._kinds)):
            yield row + extra


class Schema:
    """One compiled action schema.

    Attributes:
        number: Position in the domain.
        name: Name in lower case.
        parameters: Parameter names, without `?`.
        solve: `solve(rels, world)` → argument rows of the actions on offer; may repeat.
        key: Picks the relations `solve` reads.
        reads: Slots that any condition or text of the schema reads.
        command: Writes the command for a row.
        command_args, command_key: Pick the values and the relations the command depends on.
        feedback: Writes the observation for a row, in the state after the action.
        feedback_key: Picks the relations `feedback` reads.
    """

    def __init__(self, number: int, schema: pddl.Schema, rules: Rules) -> None:
        compiler = rules.compiler
        for formula in (schema.precondition, *(effect.condition for effect in schema.effects)):
            rules.domain.check(formula, f"action {schema.name!r}")
        self.number, self.name = number, schema.name
        names = [name for name, _ in schema.parameters]
        self.parameters = tuple(name.removeprefix("?") for name in names)
        compiler.read = set()
        condition = And((*conjuncts(schema.precondition), _can_change(schema)))
        self.solve = compiler.solve(schema.parameters, condition)
        solve_reads = frozenset(compiler.read)
        self._effects = [_Effect(effect, names, rules) for effect in schema.effects]
        condition_reads = frozenset(compiler.read)
        self._conditional = [effect for effect in self._effects if effect.condition is not None]
        self._unconditional = [effect for effect in self._effects if effect.condition is None]
        self._known = [
            (Pattern(atom, names, rules.vocabulary), value) for atom, value in _required(schema.precondition)
        ]
        texts = rules.grammar.actions.get(schema.name)
        if texts is None:
            raise GrammarError(f"Text grammar: no text for action {schema.name!r} of the domain.")
        scope = tuple((name.removeprefix("?"), kind) for name, kind in schema.parameters)
        self.command = rules.texts.compile(texts.template, scope)
        self.command_args, self.command_key = key_of(self.command.uses), key_of(self.command.reads)
        self.move_reads = solve_reads | self.command.reads
        self.key = key_of(self.move_reads)
        self.feedback = rules.texts.compile(texts.feedback, scope)
        self.feedback_key = key_of(self.feedback.reads)
        self.reads = condition_reads | self.command.reads | self.feedback.reads

    def ground(self, row: Row, rules: Rules, world: World, tracked: frozenset[int]) -> Effects:
        """Works out the effects for one row of arguments, reduced to `tracked` slots."""
        conditional = []
        for effect in self._conditional:
            for values in effect.instances(row, world):
                fact = (effect.pattern.slot, effect.pattern.fill(values, world))
                conditional.append((effect.condition, values, rules.changes({fact: effect.adds}, tracked)))
        return rules.changes(self._net(row, world), tracked), tuple(conditional)

    def _net(self, row: Row, world: World) -> dict[tuple[int, Row], bool]:
        """Returns the facts that unconditional effects make true or false, without those known to be so."""
        facts: dict[tuple[int, Row], bool] = {}
        for effect in self._unconditional:
            for values in effect.instances(row, world):
                fact = (effect.pattern.slot, effect.pattern.fill(values, world))
                if effect.adds or fact not in facts:
                    facts[fact] = effect.adds  # An add wins over a delete of the same fact.
        known = {(pattern.slot, pattern.fill(row, world)): value for pattern, value in self._known}
        return {fact: adds for fact, adds in facts.items() if known.get(fact) != adds}


def _required(formula: Formula) -> Iterator[tuple[Atom, bool]]:
    """Yields the literals that hold wherever `formula` does, as (atom, truth value)."""
    for part in conjuncts(formula):
        if isinstance(part, Atom):
            yield part, True
        elif isinstance(part, Not) and isinstance(part.part, Atom):
            yield part.part, False


def _can_change(schema: pddl.Schema) -> Formula:
    """Returns the condition on its arguments under which an applicable action can change a fact.

    The reference does not offer an action that cannot, such as going where one is. An effect counts unless
    the precondition states its fact already, or it deletes a fact that is also added (the add wins).
    """
    ways: list[Formula] = []
    for effect in schema.effects:
        if effect.condition != And(()):
            return And(())
        idle = [
            _equal(effect.atom, atom)
            for atom, value in _required(schema.precondition)
            if value == effect.adds and atom.predicate == effect.atom.predicate
        ]
        for other in schema.effects:
            if other.adds and not effect.adds and other.atom.predicate == effect.atom.predicate:
                apart = {name: f"{name}'" for name, _ in other.variables}
                same = _equal(effect.atom, substitute(other.atom, apart))
                idle.append(_exists([(apart[name], kind) for name, kind in other.variables], same))
        if not idle and not effect.variables:
            return And(())
        ways.append(_exists(effect.variables, And(tuple(Not(part) for part in idle))))
    return Or(tuple(ways))


def _exists(variables: Sequence[tuple[str, str]], part: Formula) -> Formula:
    return Exists(tuple(variables), part) if variables else part


def _equal(one: Atom, other: Atom) -> Formula:
    return And(tuple(Equal(a, b) for a, b in zip(one.args, other.args, strict=True)))


class Rules:
    """A domain with its grammar, compiled.

    Attributes:
        domain: The domain as read.
        vocabulary: Slot and type numbers shared by all games of these rules.
        schemas: Compiled actions, in the order of the domain.
        intro: Writes the first observation.
        reads: Slots that any action or text reads.
        moves_key: Picks the relations that decide which commands are admissible.
    """

    def __init__(self, domain: Domain, grammar: Grammar) -> None:
        self.domain, self.grammar = domain, grammar
        self.vocabulary = Vocabulary()
        for predicate in domain.predicates:
            self.vocabulary.predicate(predicate)
        self.compiler = Compiler(self.vocabulary, _TYPICAL_SIZES, self._trusted(), self._is_below)
        self.texts = TextCompiler(grammar, self.compiler)
        self.schemas = tuple(Schema(i, schema, self) for i, schema in enumerate(domain.actions))
        self.intro = self.texts.compile((Call("intro"),), ())
        self.reads = self.intro.reads.union(*(schema.reads for schema in self.schemas))
        self.moves_key = key_of(frozenset().union(*(s.move_reads for s in self.schemas)))
        self._constants = tuple(self.vocabulary.constants)
        self._false_slot = {
            self.vocabulary.predicates[name.removeprefix("not_")]: slot
            for name, slot in self.vocabulary.predicates.items()
            if name.startswith("not_") and name.removeprefix("not_") in self.vocabulary.predicates
        }

    def check_constants(self, goal: Formula, objects: Mapping[str, str]) -> None:
        """Checks that a problem declares every object that the domain or its goal names.

        Raises:
            PddlError: one is missing. (A goal on an object that is not there could never be reached.)
        """
        in_goal = [name for atom in atoms_of(goal) for name in atom.args if not name.startswith("?")]
        for name in (*self._constants, *in_goal):
            if name not in objects:
                raise PddlError(f"the problem does not declare {name!r}, which its domain or goal names.")

    def compile_goal(self, goal: Formula) -> tuple[Callable[..., bool], frozenset[int]]:
        """Compiles a goal; returns its test `f(rels, world)` and the slots it reads."""
        self.domain.check(goal, "goal")
        self.compiler.read = set()
        return self.compiler.test(goal), frozenset(self.compiler.read)

    def changes(self, facts: Mapping[tuple[int, Row], bool], tracked: frozenset[int]) -> tuple[Change, ...]:
        """Groups made-true and made-false facts by slot, with what they mean for `not_…` slots."""
        adds: dict[int, set[Row]] = {}
        deletes: dict[int, set[Row]] = {}
        for (slot, fact), value in facts.items():
            (adds if value else deletes).setdefault(slot, set()).add(fact)
            if slot in self._false_slot:
                (deletes if value else adds).setdefault(self._false_slot[slot], set()).add(fact)
        return tuple(
            (slot, frozenset(adds.get(slot, ())), frozenset(deletes.get(slot, ())))
            for slot in sorted((adds.keys() | deletes.keys()) & tracked)
        )

    def initial_facts(
        self, init: Iterable[tuple[str, ...]], kinds: Mapping[str, str], number: Mapping[str, int]
    ) -> list[set[Row]]:
        """Sorts a problem's initial facts into one table per slot.

        Args:
            init: Facts (predicate, object, …).
            kinds: Object → type.
            number: Object → number.

        Raises:
            PddlError: an unknown predicate or object, a wrong number of arguments, or one of a wrong type.
        """
        tables: list[set[Row]] = [set() for _ in self.vocabulary.predicates]
        fits: dict[tuple[str, str], bool] = {}
        for predicate, *args in init:
            types = self.domain.predicates.get(predicate)
            if types is None or len(types) != len(args):
                raise PddlError(f"initial fact {(predicate, *args)} does not fit any declared predicate.")
            for name, declared in zip(args, types, strict=True):
                kind = kinds.get(name)
                if kind is None:
                    raise PddlError(f"initial fact {(predicate, *args)}: object {name!r} is not declared.")
                if (kind, declared) not in fits:
                    fits[kind, declared] = self._is_below(kind, declared)
                if not fits[kind, declared]:
                    raise PddlError(
                        f"initial fact {(predicate, *args)}: {name!r} is no {declared}, but a {kind}."
                    )
            tables[self.vocabulary.predicates[predicate]].add(tuple([number[name] for name in args]))
        return tables

    def _is_below(self, kind: str, other: str) -> bool:
        return kind in self.domain.types | {pddl.ROOT_TYPE: ""} and other in self.domain.supertypes(kind)

    def _trusted(self) -> dict[str, tuple[str, ...]]:
        """Returns argument types of the predicates whose every effect keeps to the declaration.

        The packaged domain marks an agent as `checked`, which is declared for receptacles.
        """
        loose = set()
        for schema in self.domain.actions:
            for effect in schema.effects:
                kinds = dict(schema.parameters) | dict(effect.variables) | self.domain.constants
                self.domain.check(effect.atom, f"action {schema.name!r}")
                types = self.domain.predicates[effect.atom.predicate]
                if not all(
                    self._is_below(kinds.get(a, ""), t) for a, t in zip(effect.atom.args, types, strict=True)
                ):
                    loose.add(effect.atom.predicate)
        return {name: types for name, types in self.domain.predicates.items() if name not in loose}
