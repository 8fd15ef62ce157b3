"""PDDL and grammar readers: what they cover, and that they refuse the rest by name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.alfworld import compile_game
from envs.alfworld.formula import And, Atom, Exists, Not, Or
from envs.alfworld.game import packaged_text
from envs.alfworld.grammar import GrammarError, Text, read_expression, read_grammar, read_query, read_symbols
from envs.alfworld.pddl import PddlError, read_domain, read_formula, read_problem, typed_list
from envs.alfworld.relations import Relation
from envs.base import EnvError
from tests.envs.small_games import kitchen, porch


def changed(text, old, new):
    assert old in text
    return text.replace(old, new, 1)


def test_typed_lists_default_to_object_and_keep_punctuation():
    assert typed_list(["a", "b", "-", "t", "c"]) == (("a", "t"), ("b", "t"), ("c", "object"))
    assert typed_list(["?l", "-", "location,", "?r", "-", "t"]) == (("?l", "location,"), ("?r", "t"))


def test_conditions_become_formulas():
    assert read_formula([]) == And(())
    assert read_formula(["imply", ["p"], ["q"]]) == Or((Not(Atom("p", ())), Atom("q", ())))
    assert read_formula(["exists", ["?x"], ["p", "?x"]]) == Exists((("?x", "object"),), Atom("p", ("?x",)))


def test_symbols_are_case_insensitive_and_comments_are_dropped():
    problem = read_problem("(define (problem P) (:objects A - T) ; (not read\n (:init (P A)) (:goal (p a)))")
    assert (
        problem.objects == {"a": "t"} and problem.init == (("p", "a"),) and problem.goal == Atom("p", ("a",))
    )


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        (":adl", ":durative-actions", ":durative-actions"),
        ("(:functions (total-cost) - number)", "(:derived (p) (q))", ":derived"),
        (":parameters (?p - person)\n    :precondition ()", ":duration 3", ":duration"),
        (":effect (sealed ?b)", ":effect (assign (total-cost) 3)", "assign"),
        (":effect (sealed ?b)", ":effect (sealed ?z)", "?z"),
        (":effect (sealed ?b)", ":effect (sealed ?b ?c)", "sealed"),
        ("(not (sealed ?b)) (imply", "(not (shut ?b)) (imply", "shut"),
        ("(not (= ?b ?c))", "(> ?b ?c)", ">"),
        ("(not (= ?b ?c))", "(not (sealed ?nobody))", "?nobody"),
        ("(:action walk", "(:action fly", "fly"),
        ("lamp box - thing", "lamp box - (either thing place)", "either"),
        ("lamp box - thing", "lamp box - furniture", "furniture"),
        ("place thing - object", "place thing - lamp", "ancestor"),
    ],
)
def test_what_a_domain_may_not_hold_is_named(old, new, named):
    game = porch(pddl_domain=changed(porch().pddl_domain, old, new))
    with pytest.raises(EnvError, match=named.replace("?", r"\?")) as caught:
        compile_game(game)
    assert "porch" in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("(:goal", "(:constraints", ":constraints"),
        ("(lit lamp_bar_2)", "(lit vase_bar_1)", "vase_bar_1"),
        ("(lit lamp_bar_2)", "(lit lamp_bar_9)", "lamp_bar_9"),
        ("(lit lamp_bar_2)", "(dim lamp_bar_2)", "dim"),
        ("(lit lamp_bar_2)", "(not (lit lamp_bar_2))", "initial fact"),
        ("(and (rang)", "(and (rung)", "rung"),
        ("(and (rang)", "(and (lit lamp_bar_7)", "lamp_bar_7"),
        ("(:domain porch)", "(:domain porch))", r"\)"),
        ("(:objects porter1", "(:objects (porter1)", "name"),
    ],
)
def test_what_a_problem_may_not_hold_is_named(old, new, named):
    with pytest.raises(PddlError, match=named):
        compile_game(porch(pddl_problem=changed(porch().pddl_problem, old, new)))


def test_a_problem_must_declare_the_types_its_domain_names():
    with pytest.raises(PddlError, match="sinkbasintype"):
        compile_game(kitchen(pddl_problem="(define (problem p) (:objects a - agent) (:init) (:goal (and)))"))


def test_a_condition_too_deep_is_refused():
    deep = "(not " * 400 + "(rang)" + ")" * 400
    with pytest.raises(PddlError, match="deep"):
        compile_game(porch(pddl_problem=changed(porch().pddl_problem, "(and (rang)", f"(and {deep}")))


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("action walk {", "verb walk {", "verb"),
        ('template :: "ring";', "", "ring"),
        ('template :: "ring";', 'template :: "ring"; sound :: "ding";', "sound"),
        ("{to.name}", "{to.colour}", "Attribute"),
        ("{to.name}", "{to.name.upper()}", "Call"),
        ("{to.name}", "{to +}", "cannot read"),
        ("{to.name}", "{nobody.name}", "nobody"),
        ("#left#", "#right#", "right"),
        ('"thing(t)": [{"rhs"', '"thing(t)": [{"left"', "rhs"),
        ('"rhs": "    You see nothing."', '"rhs": "#survey.feedback#"', "calls itself"),
        ("atplace(p:person, x:place) &", "atplace(p:person, x:place) or", "query"),
        ('thingat(t:thing, x:place)",', 'thingat(t:thing, x:thing)",', "two types"),
        ('"intro": [', '"intro": ', "JSON"),
        ("action survey {", "~ action survey {", "line"),
    ],
)
def test_what_a_grammar_may_not_hold_is_named(old, new, named):
    with pytest.raises(GrammarError, match=named):
        compile_game(porch(grammar=changed(porch().grammar, old, new)))


@pytest.mark.parametrize(
    "text", ["__import__('os')", "o.__class__", "o[0]", "lambda: 0", "f'{o}'", "o.name * 9", "1"]
)
def test_expressions_run_nothing_but_names_and_texts(text):
    with pytest.raises(GrammarError):
        read_expression(text)


def test_a_list_without_its_rule_fails_when_it_is_written():
    grammar = changed(porch().grammar, '"list_empty": [{"rhs": "nothing"}],', "")
    compiled = compile_game(porch(grammar=grammar))
    with pytest.raises(GrammarError, match="list_empty"):
        state = compiled.step(compiled.initial, "ring")[0]
        problem = changed(porch().pddl_problem, "(lit lamp_bar_2)", "")
        dark = compile_game(porch(grammar=grammar, pddl_problem=problem))
        state = dark.step(dark.initial, "ring")[0]
        dark.step(state, "ring")


def test_a_rule_none_of_whose_productions_applies_is_told():
    grammar = changed(porch().grammar, ',\n                {"rhs": "None gone."}', "")
    compiled = compile_game(porch(grammar=grammar))
    state = compiled.initial
    for command in ("walk to gate 2", "grab box 2 from gate_bar_1"):
        state, _ = compiled.step(state, command)
    with pytest.raises(GrammarError, match="left"):
        compiled.step(state, "put box 2 in/on gate 2")


def test_right_hand_sides():
    assert read_symbols("  \tone\\ntwo") == (Text("one\ntwo"),)
    assert read_symbols("one; two") == (Text("one"),)
    assert read_symbols("// a remark\nseen") == (Text("seen"),)
    assert read_symbols("") == ()
    assert read_query("p(x, y:t)").kinds == (("x", "x"), ("y", "t"))


def test_relations_index_rows_by_any_positions():
    relation = Relation(frozenset({(2, 1, 3), (1, 1, 3), (1, 2, 3)}))
    assert relation.rows() == [(1, 1, 3), (1, 2, 3), (2, 1, 3)]
    assert relation.index((1,))[1] == [(1, 1, 3), (2, 1, 3)]
    assert relation.index((0, 2))[1, 3] == [(1, 1, 3), (1, 2, 3)]


READERS = (
    (read_domain, packaged_text("alfred.pddl")),
    (read_grammar, packaged_text("alfred.twl2")),
    (read_domain, porch().pddl_domain),
    (read_grammar, porch().grammar),
    (read_problem, porch().pddl_problem),
)


@given(st.sampled_from(READERS), st.data())
def test_damaged_texts_raise_only_our_errors(reader, data):
    read, text = reader
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 200)))
    middle = data.draw(st.sampled_from(["", "(", ")", "()", '"', "{", "}", "-", "?x", "not", ";", "#", "["]))
    try:
        read(text[:start] + middle + text[end:])
    except EnvError as error:
        assert str(error)
