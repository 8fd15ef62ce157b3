"""Reader for the text grammar a game brings (`.twl2`): command templates and feedback rules.

A grammar file holds `grammar :: \"\"\"{json}\"\"\";` blocks and `action NAME { template :: "…"; feedback ::
"…"; grammar :: \"\"\"{json}\"\"\"; }` blocks. A rule is a list of productions, each a right-hand side with an
optional condition; the first whose condition holds is used. A right-hand side is made of text, `#rule#`,
`{expression}`, `{expression | query}` and `[{expression | query}]` (the results as an English list).
"""

from __future__ import annotations

import ast
import json
import re
import textwrap
from dataclasses import dataclass

from envs.alfworld.formula import Atom
from envs.base import EnvError

_SCAN = re.compile(
    r'#[^\n]*|"""(?P<block>.*?)"""|"(?P<string>[^"]*)"|(?P<word>[\w/-]+)|(?P<mark>::|[{};])|\s+', re.S
)
_QUERY_ATOM = re.compile(r"\s*([\w/@-]+)\s*\(([^()]*)\)\s*")
_TEXT = re.compile(r'[^;|"<>\[\]#{}]+')
_RULE = re.compile(r"#([\w()/!<>\-\s,.]+)#")
_SLOT = re.compile(r"\{\s*(?:#([\w()/!<>\-\s,.]+)#|([^|\[\]{}\n<>#]+))\s*(?:\|([^;|{}\n\[\]#]+))?\}")
_LINE_START = re.compile(r"(?://[^\n]*|\s*)\n?")
_FIELDS = ("name", "id", "definite", "indefinite")


class GrammarError(EnvError):
    """A text grammar is malformed or uses a construct the engine does not implement."""


@dataclass(frozen=True, slots=True)
class Query:
    """A conjunctive query: atoms over variables, and the type of each variable."""

    atoms: tuple[Atom, ...]
    kinds: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Text:
    """Literal text."""

    text: str


@dataclass(frozen=True, slots=True)
class Call:
    """`#rule#`."""

    rule: str


@dataclass(frozen=True, slots=True)
class Value:
    """`{expression}` over the variables in scope, as a checked Python expression tree."""

    expression: ast.expr


@dataclass(frozen=True, slots=True)
class Each:
    """`{part | query}`: `part` for every result of the query; `as_list` joins them as an English list."""

    part: Call | Value
    query: Query
    as_list: bool


Symbol = Text | Call | Value | Each


@dataclass(frozen=True, slots=True)
class Production:
    """One way to write a rule; `condition` None means always."""

    condition: Query | None
    symbols: tuple[Symbol, ...]


@dataclass(frozen=True, slots=True)
class ActionText:
    """Texts of one action: the command as a player types it and what the game answers."""

    template: tuple[Symbol, ...]
    feedback: tuple[Symbol, ...]


@dataclass(frozen=True)
class Grammar:
    """All rules, and the texts of every action by lower-case action name."""

    rules: dict[str, tuple[Production, ...]]
    actions: dict[str, ActionText]


def read_grammar(text: str) -> Grammar:
    """Reads a whole `.twl2` text.

    Raises:
        GrammarError: malformed, or a construct that is not implemented.
    """
    try:
        return _read_blocks(_tokens(text))
    except (IndexError, KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise GrammarError(f"Text grammar: malformed ({type(error).__name__}: {error}).") from error


def _read_blocks(tokens: list[tuple[str, str]]) -> Grammar:
    raw_rules: dict[str, list[dict]] = {}
    actions: dict[str, ActionText] = {}
    position = 0
    while position < len(tokens):
        word = tokens[position][1]
        if word == "grammar":
            raw_rules.update(_json_block(tokens[position + 2][1]))
            position += 4
        elif word == "action":
            name = tokens[position + 1][1]
            end = next((i for i in range(position, len(tokens)) if tokens[i] == ("mark", "}")), len(tokens))
            fields = _fields(name, tokens[position + 3 : end])
            raw_rules.update(_json_block(_without_comments(fields.get("grammar", "{}"))))
            actions[name.lower()] = ActionText(
                read_symbols(fields["template"]), read_symbols(fields["feedback"])
            )
            position = end + 1
        else:
            raise GrammarError(f"Text grammar: unsupported block {word!r}; expected 'grammar' or 'action'.")
    rules = {name: tuple(_production(name, row) for row in rows) for name, rows in raw_rules.items()}
    return Grammar(rules, actions)


def _tokens(text: str) -> list[tuple[str, str]]:
    tokens: list[tuple[str, str]] = []
    position = 0
    while position < len(text):
        match = _SCAN.match(text, position)
        if match is None:
            line = text.count("\n", 0, position) + 1
            raise GrammarError(f"Text grammar, line {line}: cannot read {text[position : position + 20]!r}.")
        position = match.end()
        if match.lastgroup:
            tokens.append((match.lastgroup, match[match.lastgroup]))
    return tokens


def _fields(action: str, tokens: list[tuple[str, str]]) -> dict[str, str]:
    """Reads the `key :: value;` lines of an action block."""
    fields = {tokens[i][1]: tokens[i + 2][1] for i in range(0, len(tokens) - 2, 4)}
    unknown = sorted(set(fields) - {"template", "feedback", "grammar", "pddl"})
    if unknown or "template" not in fields or "feedback" not in fields:
        got = f"unsupported field {unknown[0]!r}" if unknown else f"fields {sorted(fields)}"
        raise GrammarError(f"Text grammar, action {action!r}: {got}; expected template, feedback[, grammar].")
    return fields


def _without_comments(block: str) -> str:
    return "\n".join(line for line in block.split("\n") if not line.lstrip().startswith("#"))


def _json_block(block: str) -> dict[str, list[dict]]:
    try:
        return json.loads(textwrap.dedent(block))
    except json.JSONDecodeError as error:
        raise GrammarError(f"Text grammar: a grammar block is not valid JSON: {error}.") from error


def _production(name: str, row: dict) -> Production:
    unknown = sorted(set(row) - {"rhs", "condition", "weight"})
    if unknown or "rhs" not in row:
        raise GrammarError(f"Text grammar, rule {name!r}: expected rhs[, condition], got {sorted(row)}.")
    condition = read_query(row["condition"]) if row.get("condition") else None
    return Production(condition, read_symbols(row["rhs"]))


def read_symbols(text: str) -> tuple[Symbol, ...]:
    """Reads a right-hand side.

    As the reference reads it: white space at the start of a line is dropped where a symbol may start, `\\n`
    may be written out, and a character that starts no symbol ends the text.
    """
    symbols: list[Symbol] = []
    position = 0
    while position < len(text):
        position = _skip(text, position)
        symbol, end = _symbol(text, position)
        if symbol is None:
            break
        symbols.append(symbol)
        position = end
    return tuple(symbols)


def _skip(text: str, position: int) -> int:
    while True:
        start = position
        while position < len(text) and text[position] == "\t":
            position += 1
        if position == 0 or text[position - 1] == "\n":
            position = _LINE_START.match(text, position).end()
        if position == start:
            return position


def _symbol(text: str, position: int) -> tuple[Symbol | None, int]:
    is_list = text[position : position + 1] == "["
    if slot := _SLOT.match(text, position + is_list):
        end = slot.end()
        if not is_list or text[end : end + 1] == "]":
            rule, expression, query = slot.groups()
            part = Call(rule) if rule else Value(read_expression(expression))
            if not is_list and query is None:
                return part, end
            conditions = read_query(query) if query else Query((), ())
            return Each(part, conditions, is_list), end + is_list
    if call := _RULE.match(text, position):
        return Call(call[1]), call.end()
    if words := _TEXT.match(text, position):
        return Text(words[0].replace("\\n", "\n")), words.end()
    return None, position


def read_query(text: str) -> Query:
    """Reads `p(x:type, y:type) & q(x:type)`."""
    atoms: list[Atom] = []
    kinds: dict[str, str] = {}
    for part in text.split("&"):
        match = _QUERY_ATOM.fullmatch(part)
        if match is None:
            raise GrammarError(f"Text grammar: unsupported query {text!r}; expected p(x:type, …) & q(…).")
        args = []
        for argument in filter(None, (piece.strip() for piece in match[2].split(","))):
            name, _, kind = (piece.strip() for piece in argument.partition(":"))
            if kinds.setdefault(name, kind or name) != (kind or name):
                raise GrammarError(f"Text grammar: variable {name!r} has two types in query {text!r}.")
            args.append(name)
        atoms.append(Atom(match[1], tuple(args)))
    return Query(tuple(atoms), tuple(kinds.items()))


def read_expression(text: str) -> ast.expr:
    """Reads an expression: names, their fields, strings, `+`, `or`, `and`, `a if b else c`.

    Raises:
        GrammarError: for anything else. Game files are data, so nothing else is ever evaluated.
    """
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        raise GrammarError(f"Text grammar: cannot read the expression {text!r}.") from error
    for node in ast.walk(tree):
        plain = isinstance(
            node, ast.Name | ast.BoolOp | ast.boolop | ast.Add | ast.BinOp | ast.IfExp | ast.Load
        )
        member = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.attr in _FIELDS
        string = isinstance(node, ast.Constant) and isinstance(node.value, str)
        if not (plain or member or string):
            raise GrammarError(f"Text grammar: unsupported expression {text!r} ({type(node).__name__}).")
    return tree
