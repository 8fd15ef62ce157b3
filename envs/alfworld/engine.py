"""The game engine: compiles what a game brings, then only updates sets and looks up strings.

Domain and grammar are compiled once per pair of texts (`Rules`), a problem once per game (`CompiledGame`,
shared by all members of a group). A `State` is immutable, so a snapshot is a reference. Behaviour is that of
the reference engine (alfworld 0.4.2 on textworld 1.7.0), quirks included:

* an action that changes nothing in any state is not offered (`go to` a receptacle of the present location);
* `not_p` in a text query means "made false since the start", not "not true".

Departures, none of which a shipped game can show:

* a conditional effect (`when`) touches text facts only if it happens; the reference applies it always;
* a task sentence is shown as it is; the reference reads it as grammar, and cuts it at a semicolon;
* a query sorts by object; the reference sorts by type first where types have levels;
* a listed command that ends in a space (a name without a number does) is accepted; the reference strips it.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterator
from functools import lru_cache

from envs.alfworld.game import GOAL_MARK, Game, packaged_text
from envs.alfworld.grammar import GrammarError, read_grammar
from envs.alfworld.names import display_names
from envs.alfworld.pddl import PddlError, Problem, read_domain, read_problem
from envs.alfworld.relations import Relation, Row, World
from envs.alfworld.rules import Rules, Schema, key_of
from envs.alfworld.state import Action, Memo, Moves, State
from envs.alfworld.text import Entity

NOTHING_HAPPENS = "Nothing happens."
_GAMES_KEPT = 64
# What `situation` reports: where the agent is, what it holds, and which of these are true of that object.
_PLACE, _HELD = "atlocation", "holds"
_CONDITIONS = {"isclean": "clean", "ishot": "hot", "iscool": "cool", "issliced": "sliced", "istoggled": "on"}


class CompiledGame:
    """One game, ready to play. Holds no trajectory: all methods take and return `State`.

    Attributes:
        initial: The state a trajectory starts from.
        intro: The first observation, task sentence included.
        objects: Object ids in lower case; an object's number is its position here.
        entities: Display names, by object number.
    """

    def __init__(self, rules: Rules, problem: Problem, goal_sentence: str) -> None:
        self._rules = rules
        self.objects = tuple(sorted(rules.domain.constants | problem.objects))
        number = {name: i for i, name in enumerate(self.objects)}
        kinds = rules.domain.constants | problem.objects
        rules.check_constants(problem.goal, kinds)
        self._goal, goal_reads = rules.compile_goal(problem.goal)
        self.world = _world(rules, kinds, number)
        tables = rules.initial_facts(problem.init, kinds, number)
        self.entities = tuple(
            Entity(name, shown) for name, shown in display_names(self.objects, problem.init)
        )
        slots = rules.vocabulary.predicates
        told = frozenset(slots[name] for name in (_PLACE, _HELD, *_CONDITIONS) if name in slots)
        self._situation_key = key_of(told)
        self._tracked = rules.reads | goal_reads | told
        self._goal_key = key_of(goal_reads)
        # Large enough for what a group of eight meets in one trajectory; relations are the largest entries.
        self._relations, self._commands, self._texts = Memo(128), Memo(2048), Memo(512)
        self._moves_of, self._wins, self._situations = Memo(256), Memo(512), Memo(256)
        self._applicable_of = tuple(Memo(256) for _ in rules.schemas)
        self.initial = State(tuple(Relation(frozenset(table)) for table in tables))
        intro = rules.intro.write(self.initial.rels, self.world, self.entities, ())
        self.intro = intro.replace(GOAL_MARK, goal_sentence)

    def admissible(self, state: State) -> tuple[str, ...]:
        """Returns the commands the game accepts in `state`, sorted and unique."""
        return self._moves(state).commands

    def actions(self, state: State) -> tuple[Action, ...]:
        """Returns the actions behind `admissible(state)`, in the same order."""
        return self._moves(state).actions

    def step(self, state: State, command: str) -> tuple[State, str]:
        """Plays one command.

        Returns:
            The next state and the observation; the same state and "Nothing happens." for a command that is
            not admissible. White space around a command is ignored; case matters.
        """
        action = self._find(state, command) or self._find(state, command.strip())
        if action is None:
            return state, NOTHING_HAPPENS
        after = self.apply(state, action)
        return after, self._say(action, after)

    def _find(self, state: State, command: str) -> Action | None:
        moves = self._moves(state)
        position = bisect_left(moves.commands, command)
        found = position < len(moves.commands) and moves.commands[position] == command
        return moves.actions[position] if found else None

    def won(self, state: State) -> bool:
        """Returns whether the goal holds."""
        if state._won is None:
            key = self._goal_key(state.rels)
            won = self._wins.get(key)
            if won is None:
                won = self._wins.keep(key, self._goal(state.rels, self.world))
            state._won = won
        return state._won

    def situation(self, state: State) -> str:
        """Describes, for anchors, where the agent is, what it holds and the condition of what it holds."""
        key = self._situation_key(state.rels)
        text = self._situations.get(key)
        if text is None:
            place = ", ".join(self._names(state, _PLACE))
            held = [
                " ".join(
                    [name, *(word for has, word in _CONDITIONS.items() if name in self._names(state, has))]
                )
                for name in self._names(state, _HELD)
            ]
            text = self._situations.keep(
                key, f"at {place or 'no place'}; holding {', '.join(held) or 'nothing'}"
            )
        return text

    def _names(self, state: State, predicate: str) -> list[str]:
        """Returns the shown name of the last object in each fact of a predicate; none if it has no facts."""
        return [self.entities[row[-1]].name for row in self._rows(state, predicate)]

    def facts(self, state: State, predicate: str) -> list[tuple[str, ...]]:
        """Returns the true facts of a predicate as object ids, sorted.

        Only predicates that some condition, goal or text reads are kept up to date after the start.
        """
        return [tuple(self.objects[i] for i in row) for row in self._rows(state, predicate.lower())]

    def _rows(self, state: State, predicate: str) -> list[Row]:
        slot = self._rules.vocabulary.predicates.get(predicate)
        return [] if slot is None else state.rels[slot].rows()

    def apply(self, state: State, action: Action) -> State:
        """Returns the state after an action that is applicable in `state`."""
        rels = state.rels
        if action.effects is None:
            action.effects = action.schema.ground(action.args, self._rules, self.world, self._tracked)
        changes, conditional = action.effects
        for condition, values, then in conditional:  # All conditions are tested before anything changes.
            if condition(rels, self.world, *values):
                changes += then
        new: list[Relation] | None = None
        for slot, adds, deletes in changes:
            old = (new or rels)[slot].facts
            if adds <= old and deletes.isdisjoint(old):
                continue
            if new is None:
                new = list(rels)
            new[slot] = self._relation(slot, (old - deletes) | adds)
        return state if new is None else State(tuple(new))

    def _relation(self, slot: int, facts: frozenset[Row]) -> Relation:
        """Interns relations, so that equal situations share indexes and memo keys."""
        key = (slot, facts)
        found = self._relations.get(key)
        return found if found is not None else self._relations.keep(key, Relation(facts))

    def _say(self, action: Action, after: State) -> str:
        schema = action.schema
        key = (schema.number, action.args, schema.feedback_key(after.rels))
        text = self._texts.get(key)
        if text is None:
            write = schema.feedback.write
            text = self._texts.keep(key, write(after.rels, self.world, self.entities, action.args))
        return text

    def _moves(self, state: State) -> Moves:
        if state._moves is None:
            key = self._rules.moves_key(state.rels)
            moves = self._moves_of.get(key)
            if moves is None:
                found: list[Action] = []
                for schema in self._rules.schemas:
                    found += self._applicable(schema, state)
                moves = self._moves_of.keep(key, Moves(found))
            state._moves = moves
        return state._moves

    def _applicable(self, schema: Schema, state: State) -> tuple[Action, ...]:
        memo, key = self._applicable_of[schema.number], schema.key(state.rels)
        found = memo.get(key)
        if found is None:
            rows = sorted(set(schema.solve(state.rels, self.world)))
            found = memo.keep(key, tuple(self._actions(schema, rows, state)))
        return found

    def _actions(self, schema: Schema, rows: list[Row], state: State) -> Iterator[Action]:
        commands, pick, read = self._commands, schema.command_args, schema.command_key(state.rels)
        for row in rows:
            key = (schema.number, pick(row), read)
            text = commands.get(key)
            if text is None:
                text = schema.command.write(state.rels, self.world, self.entities, row)
                commands.keep(key, text)
            yield Action(schema, row, text)


def _world(rules: Rules, kinds: dict[str, str], number: dict[str, int]) -> World:
    members: dict[str, set[int]] = {}
    for name, kind in kinds.items():
        for above in rules.domain.supertypes(kind):
            members.setdefault(above, set()).add(number[name])
    extents = [tuple(sorted(members.get(kind, ()))) for kind in rules.vocabulary.types]
    constants = [number.get(name, -1) for name in rules.vocabulary.constants]
    return World(tuple(extents), tuple(frozenset(extent) for extent in extents), tuple(constants))


@lru_cache(maxsize=16)
def _rules(domain_text: str, grammar_text: str) -> Rules:
    return Rules(read_domain(domain_text), read_grammar(grammar_text))


_lock = threading.Lock()
_compiled: OrderedDict[bytes, CompiledGame] = OrderedDict()


def compile_game(game: Game) -> CompiledGame:
    """Compiles a game, or returns the one compiled before from the same texts. Thread-safe.

    Raises:
        PddlError, GrammarError: a text is malformed or uses a construct that is not implemented; the message
            names the game.
    """
    with _lock:
        found = _compiled.get(game.digest)
        if found is not None:
            _compiled.move_to_end(game.digest)
            return found
        domain = game.pddl_domain or packaged_text("alfred.pddl")
        grammar = game.grammar or packaged_text("alfred.twl2")
        try:
            compiled = CompiledGame(_rules(domain, grammar), read_problem(game.pddl_problem), game.goal)
        except (PddlError, GrammarError) as error:
            raise type(error)(f"Game {game.id!r}: {error}") from error
        _compiled[game.digest] = compiled
        if len(_compiled) > _GAMES_KEPT:
            _compiled.popitem(last=False)
        return compiled
