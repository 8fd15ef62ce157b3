"""Compiles a text grammar into closures that write observations and commands.

Which variables a rule can see is known before any game runs (the action's parameters, then what each query on
the way adds), so rules are compiled once per scope and a value is read from a row by position.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from envs.alfworld.formula import Atom
from envs.alfworld.grammar import Call, Each, Grammar, GrammarError, Query, Symbol, Text, Value
from envs.alfworld.query import Compiler
from envs.alfworld.relations import Relation, Row, World

Scope = tuple[tuple[str, str], ...]
Relations = Sequence[Relation]


@dataclass(frozen=True, slots=True)
class Entity:
    """What a grammar can say about an object."""

    id: str
    name: str
    definite: str = "the"
    indefinite: str = "a"


Write = Callable[[Relations, World, Sequence[Entity], Row], str]


@dataclass(frozen=True, slots=True)
class Template:
    """A compiled text.

    Attributes:
        write: Writes it for a row of values.
        reads: Slots of the relations it may read.
        uses: Positions of the row it depends on.
    """

    write: Write
    reads: frozenset[int] = frozenset()
    uses: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class _Search:
    """A compiled query: the scope of its rows, `find(rels, world, *row)`, and what it depends on."""

    scope: Scope
    find: Callable[..., list[Row]]
    reads: frozenset[int]
    uses: frozenset[int]


class TextCompiler:
    """Compiles the texts of one grammar; results are cached per (rule, scope)."""

    def __init__(self, grammar: Grammar, compiler: Compiler) -> None:
        self._grammar = grammar
        self._compiler = compiler
        self._rules: dict[tuple[str, Scope], Template] = {}
        self._open: set[tuple[str, Scope]] = set()

    def compile(self, symbols: Sequence[Symbol], scope: Scope) -> Template:
        """Compiles a right-hand side for a scope of (variable, type) pairs, in row order."""
        parts = [self._symbol(symbol, scope) for symbol in symbols]
        if len(parts) == 1:
            return parts[0]
        writes = tuple(part.write for part in parts)
        return Template(
            lambda rels, world, ents, row: "".join([w(rels, world, ents, row) for w in writes]),
            frozenset().union(*(part.reads for part in parts)),
            frozenset().union(*(part.uses for part in parts)),
        )

    def _symbol(self, symbol: Symbol, scope: Scope) -> Template:
        if isinstance(symbol, Text):
            text = symbol.text
            return Template(lambda rels, world, ents, row: text)
        if isinstance(symbol, Call):
            return self.rule(symbol.rule, scope)
        if isinstance(symbol, Value):
            names = [node.id for node in ast.walk(symbol.expression) if isinstance(node, ast.Name)]
            source = f"lambda rels, world, ents, row: {_source(symbol.expression, scope)}"
            write = eval(source)  # Made by _source from a checked expression: no text of a game file.
            return Template(write, uses=frozenset(_position(name, scope) for name in names))
        return self._each(symbol, scope)

    def rule(self, name: str, scope: Scope) -> Template:
        """Compiles `#name#`: the first production whose condition holds.

        Raises:
            GrammarError: no such rule, or it calls itself with nothing changed.
        """
        key = (name, scope)
        if key not in self._rules:
            if name not in self._grammar.rules:
                raise GrammarError(f"Text grammar: rule {name!r} is used but not defined.")
            if key in self._open:
                raise GrammarError(f"Text grammar: rule {name!r} calls itself.")
            self._open.add(key)
            self._rules[key] = self._productions(name, scope)
            self._open.discard(key)
        return self._rules[key]

    def _productions(self, name: str, scope: Scope) -> Template:
        options: list[tuple[Callable[..., list[Row]] | None, Write]] = []
        parts: list[Template] = []
        for production in self._grammar.rules[name]:
            body = self.compile(production.symbols, scope)
            parts.append(body)
            if production.condition is None:
                if not options:
                    return body
                options.append((None, body.write))
                break
            query = self._query(production.condition, scope)
            parts.append(Template(body.write, query.reads, query.uses))
            options.append((query.find, body.write))

        def write(rels: Relations, world: World, ents: Sequence[Entity], row: Row) -> str:
            for find, body_write in options:
                if find is None or find(rels, world, *row):
                    return body_write(rels, world, ents, row)
            raise GrammarError(f"Text grammar: no production of rule {name!r} applies.")

        reads, uses = (frozenset().union(*(getattr(p, key) for p in parts)) for key in ("reads", "uses"))
        return Template(write, reads, uses)

    def _query(self, query: Query, scope: Scope) -> _Search:
        """Compiles a query; a variable is the one in scope only if name and type agree."""
        kinds = dict(query.kinds)
        atoms = tuple(Atom(a.predicate, tuple(f"{n}:{kinds[n]}" for n in a.args)) for a in query.atoms)
        self._compiler.read = set()
        bound = tuple((f"{name}:{kind}", kind) for name, kind in scope)
        order, find = self._compiler.sequence(bound, atoms, {f"{n}:{k}": k for n, k in query.kinds})
        wide = tuple((name.partition(":")[0], kind) for name, kind in order)
        # A new variable must differ from all bound ones, so it depends on each of them.
        used = {name for atom in atoms for name in atom.args}
        fresh = len(wide) > len(scope)
        uses = frozenset(i for i, (name, _) in enumerate(bound) if fresh or name in used)
        return _Search(wide, find, frozenset(self._compiler.read), uses)

    def _each(self, symbol: Each, scope: Scope) -> Template:
        search = self._query(symbol.query, scope)
        part = self._symbol(symbol.part, search.scope)
        write_part, find = part.write, search.find
        reads = search.reads | part.reads
        uses = search.uses | {position for position in part.uses if position < len(scope)}
        if not symbol.as_list:
            return Template(
                lambda rels, world, ents, row: "".join(
                    [write_part(rels, world, ents, found) for found in find(rels, world, *row)]
                ),
                reads,
                uses,
            )
        # The rules of a list are asked for only when a list of that length is written: some have none.
        empty, separator, last_separator = (
            self.rule(name, scope) if name in self._grammar.rules else _missing(name)
            for name in ("list_empty", "list_separator", "list_last_separator")
        )

        def write(rels: Relations, world: World, ents: Sequence[Entity], row: Row) -> str:
            items = [write_part(rels, world, ents, found) for found in find(rels, world, *row)]
            if not items:
                return empty.write(rels, world, ents, row)
            if len(items) == 1:
                return items[0]
            head = separator.write(rels, world, ents, row).join(items[:-1])
            return f"{head}{last_separator.write(rels, world, ents, row)}{items[-1]}"

        for helper in (empty, separator, last_separator):
            reads, uses = reads | helper.reads, uses | helper.uses
        return Template(write, reads, uses)


def _missing(name: str) -> Template:
    def write(rels: Relations, world: World, ents: Sequence[Entity], row: Row) -> str:
        raise GrammarError(f"Text grammar: rule {name!r} is used but not defined.")

    return Template(write)


def _source(node: ast.expr, scope: Scope) -> str:
    """Writes a checked expression as Python over `ents` and `row`."""
    if isinstance(node, ast.Constant):
        return repr(node.value)
    if isinstance(node, ast.Attribute):
        assert isinstance(node.value, ast.Name)  # read_expression accepts fields of plain names only
        return f"ents[row[{_position(node.value.id, scope)}]].{node.attr}"
    if isinstance(node, ast.Name):
        return f"ents[row[{_position(node.id, scope)}]].name"
    if isinstance(node, ast.BinOp):
        return f"({_source(node.left, scope)} + {_source(node.right, scope)})"
    if isinstance(node, ast.BoolOp):
        word = " or " if isinstance(node.op, ast.Or) else " and "
        return "(" + word.join(_source(value, scope) for value in node.values) + ")"
    if isinstance(node, ast.IfExp):
        test, body, other = (_source(part, scope) for part in (node.test, node.body, node.orelse))
        return f"({body} if {test} else {other})"
    raise GrammarError(f"Text grammar: unsupported expression part {type(node).__name__}.")


def _position(name: str, scope: Scope) -> int:
    """Returns the row position of a variable: the one bound last, if types differ."""
    for position in range(len(scope) - 1, -1, -1):
        if scope[position][0] == name:
            return position
    raise GrammarError(f"Text grammar: variable {name!r} is not in scope; in scope: {[n for n, _ in scope]}.")
