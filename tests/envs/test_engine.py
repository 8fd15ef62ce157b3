"""What the engine says and accepts, on games small enough to check by hand."""

from __future__ import annotations

import pickle

import pytest

from envs.alfworld import AlfworldEnv, compile_game
from envs.alfworld.engine import NOTHING_HAPPENS
from envs.base import EnvError
from tests.envs.small_games import WINNING_WALK, kitchen, porch


def play(game, *commands):
    """Plays commands from the start; returns the compiled game, the last state and all texts."""
    compiled = compile_game(game)
    state, texts = compiled.initial, []
    for command in commands:
        state, text = compiled.step(state, command)
        texts.append(text)
    return compiled, state, texts


def test_the_intro_lists_receptacles_and_the_task():
    assert compile_game(kitchen()).intro == (
        "-= Welcome to TextWorld, ALFRED! =-\n\n"
        "You are in the middle of a room. Looking quickly around you, you see a cabinet 1, a countertop 1, "
        "a drawer 2, a drawer 1, a fridge 1, a microwave 1, and a sinkbasin 1.\n\n"
        "Your task is to: put a hot mug in cabinet."
    )


def test_admissible_commands_are_sorted_unique_and_always_have_the_three():
    compiled, state, _ = play(kitchen(), "go to countertop 1")
    assert compiled.admissible(state) == (
        "examine countertop 1",
        "go to cabinet 1",
        "go to drawer 1",
        "go to drawer 2",
        "go to fridge 1",
        "go to microwave 1",
        "go to sinkbasin 1",
        "help",
        "inventory",
        "look",
        "take knife 1 from countertop 1",
        "take tomato 2 from countertop 1",
        "use desklamp 1",
    )


def test_the_winning_walk_wins_only_at_its_last_step():
    env = AlfworldEnv()
    env.reset(kitchen())
    outcomes = [env.step(command) for command in WINNING_WALK]
    assert [outcome.success for outcome in outcomes] == [False] * 7 + [True]
    assert [outcome.reward for outcome in outcomes] == [0.0] * 7 + [1.0]
    assert outcomes[-1].terminated and not outcomes[-1].truncated and outcomes[-1].score == 1.0
    with pytest.raises(EnvError, match="is over"):
        env.step("look")


def test_running_out_of_steps_is_done_but_not_won():
    env = AlfworldEnv(max_steps=2)
    env.reset(kitchen())
    assert not env.step("look").done
    outcome = env.step("look")
    assert outcome.done and outcome.truncated and not outcome.terminated
    assert not outcome.success and outcome.score == 0.0 and outcome.reward == 0.0


def test_winning_on_the_last_step_is_no_truncation():
    env = AlfworldEnv(max_steps=len(WINNING_WALK))
    env.reset(kitchen())
    outcome = [env.step(command) for command in WINNING_WALK][-1]
    assert outcome.success and outcome.terminated and not outcome.truncated


def test_receptacles_that_share_a_location():
    compiled, state, texts = play(kitchen(), "go to drawer 1", "go to drawer 2", "open drawer 2")
    assert texts[1] == NOTHING_HAPPENS
    assert texts[2] == "You open the drawer 2. The drawer 2 is open. In it, you see nothing."
    assert "go to drawer 1" not in compiled.admissible(state)
    assert {"open drawer 1", "close drawer 2", "examine drawer 1"} <= set(compiled.admissible(state))
    _, _, texts = play(kitchen(), "go to drawer 1", "look")
    assert texts[1] == "You are facing the drawer 2, and drawer 1. Next to it, you see nothing."


def test_a_thing_put_in_the_other_receptacle_of_a_location_shows_beside_it():
    walk = ("go to drawer 1", "open drawer 1", "open drawer 2", "take mug 1 from drawer 1")
    _, _, texts = play(kitchen(), *walk, "move mug 1 to drawer 2", "look")
    assert texts[-1] == "You are facing the drawer 2, and drawer 1. Next to it, you see a mug 1."


def test_a_receptacle_without_a_door_is_always_open_to_see():
    assert play(kitchen(), "go to cabinet 1")[2] == [
        "You arrive at cabinet 1. On the cabinet 1, you see nothing."
    ]
    assert play(kitchen(), "go to fridge 1")[2] == ["You arrive at fridge 1. The fridge 1 is closed."]


def test_conditions_of_a_held_object_are_told():
    walk = ("go to countertop 1", "take tomato 2 from countertop 1")
    heat = ("go to microwave 1", "heat tomato 2 with microwave 1")
    cool = ("go to fridge 1", "cool tomato 2 with fridge 1")
    clean = ("go to sinkbasin 1", "clean tomato 2 with sinkbasin 1")
    say = "examine tomato 2"
    _, _, texts = play(kitchen(), *walk, say, *heat, say, *clean, say, *cool, say)
    assert [texts[i] for i in (2, 5, 8, 11)] == [
        "There's nothing special about tomato 2.",
        "This is a hot tomato 2.",
        "This is a hot and clean tomato 2.",
        "This is a cool and clean tomato 2.",
    ]


def test_a_lamp_is_used_where_it_stands():
    _, _, texts = play(kitchen(), "go to countertop 1", "use desklamp 1", "inventory")
    assert texts[1:] == ["You turn on the desklamp 1.", "You are not carrying anything."]


def test_slicing_needs_a_knife_in_hand_and_the_object_here():
    walk = ("go to countertop 1", "take knife 1 from countertop 1", "slice tomato 2 with knife 1")
    _, _, texts = play(kitchen(), *walk)
    assert texts[-1] == "You sliced the tomato 2 with the knife 1."


@pytest.mark.parametrize(
    "command", ["", "go to", "Go to drawer 1", "go to drawer 1.", "take mug 1 from drawer 1"]
)
def test_other_text_changes_nothing(command):
    compiled, state, texts = play(kitchen(), command)
    assert texts == [NOTHING_HAPPENS] and state is compiled.initial


def test_white_space_around_a_command_is_ignored():
    assert play(kitchen(), "  go to cabinet 1\n")[2][0].startswith("You arrive")


def test_help_is_a_command_and_starts_without_the_empty_line_of_the_grammar():
    assert play(kitchen(), "help")[2][0].startswith("Available commands:\n  look:")


@pytest.mark.parametrize("goal", ['put "it" in {x}', "cut; then stop", "a #rule# [b|c]"])
def test_the_task_sentence_is_shown_as_it_is(goal):
    assert compile_game(kitchen(goal=goal)).intro.endswith(f"Your task is to: {goal}.")


def test_members_of_a_group_share_one_compiled_game():
    assert compile_game(kitchen()) is compile_game(kitchen(id="other name"))
    assert compile_game(kitchen()) is not compile_game(kitchen(goal="another sentence"))


def test_facts_and_actions_are_open_to_planners():
    compiled, state, _ = play(kitchen(), "go to drawer 1")
    actions = compiled.actions(state)
    assert tuple(action.command for action in actions) == compiled.admissible(state)
    by_command = {action.command: action for action in actions}
    opened = compiled.apply(state, by_command["open drawer 1"])
    assert compiled.facts(opened, "opened") == [("drawer_bar_02",)]
    assert compiled.facts(state, "opened") == []
    assert opened == compiled.step(state, "open drawer 1")[0]
    assert hash(opened) == hash(compiled.step(state, "open drawer 1")[0])


def test_the_state_anchor_tells_places_and_hands_apart():
    def anchors(*commands, anchor="state"):
        env = AlfworldEnv(anchor=anchor)
        env.reset(kitchen())
        return [env.step(command).observation.anchor for command in commands]

    one, refused_one = anchors("go to cabinet 1", "nonsense")
    two, refused_two = anchors("go to sinkbasin 1", "nonsense")
    assert one == refused_one and two == refused_two and one != two
    walk = ("go to countertop 1", "take knife 1 from countertop 1")
    assert anchors(*walk, "go to cabinet 1")[-1] != one
    assert anchors("nonsense", anchor="text") == [NOTHING_HAPPENS]


def test_a_snapshot_travels_between_processes():
    env, other = AlfworldEnv(), AlfworldEnv()
    env.reset(kitchen())
    for command in WINNING_WALK[:-1]:
        env.step(command)
    there = pickle.loads(pickle.dumps(env.snapshot()))
    assert other.restore(there).text == "You arrive at cabinet 1. On the cabinet 1, you see nothing."
    assert other.instruction == "put a hot mug in cabinet"
    assert other.step(WINNING_WALK[-1]).success


@pytest.mark.parametrize("options", [{"max_steps": 0}, {"anchor": "place"}])
def test_options_out_of_range_are_refused(options):
    with pytest.raises(EnvError, match=next(iter(options))):
        AlfworldEnv(**options)


def test_only_games_are_played():
    with pytest.raises(EnvError, match="Game"):
        AlfworldEnv().reset("kitchen")
    env = AlfworldEnv()
    with pytest.raises(EnvError, match="before reset"):
        env.snapshot()
    env.reset(kitchen())
    with pytest.raises(EnvError, match="string"):
        env.step(None)


def test_a_domain_of_the_older_style():
    compiled, state, texts = play(
        porch(),
        "ring",
        "walk to gate 2",
        "survey",
        "grab box 2 from gate_bar_1",
        "grab box 1 from gate_bar_1",
        "put box 2 in/on gate 2",
        "grab box 1 from gate_bar_1",
    )
    assert compiled.intro == "A porch.\nYou see nothing.\nYour task is to: seal a box and ring."
    assert texts == [
        "lamp 2 lit.",  # every lamp is switched: conditions are tested before anything changes
        "You arrive at gate 2. You see nothing.",  # `to` is bound: a query never gives one object twice
        "You see a box 2, a box 1and a lamp 2.",  # white space that starts a rule is dropped
        "You grab the box 2.",
        NOTHING_HAPPENS,  # hands are full
        "You put the box 2 in/on the gate 2. None gone.",
        "You grab the box 1.",
    ]
    assert compiled.admissible(state) == (
        "put box 1 in/on gate 2",
        "seal box 1 not box 2",
        "survey",
        "walk to gate 1",
        "walk to home ",
    )


def test_a_query_for_not_finds_only_what_was_true_before():
    walk = ("walk to gate 2", "grab box 2 from gate_bar_1", "walk to gate 1", "put box 2 in/on gate 1")
    back = (
        "grab box 2 from gate_bar_2",
        "walk to gate 2",
        "put box 2 in/on gate 2",
        "grab lamp 2 from gate_bar_1",
    )
    _, _, texts = play(porch(), *walk, *back, "put lamp 2 in/on gate 2")
    assert texts[3] == "You put the box 2 in/on the gate 1. None gone."
    assert texts[6] == "You put the box 2 in/on the gate 2. None gone."
    other = ("walk to gate 2", "grab box 2 from gate_bar_1", "walk to gate 1", "put box 2 in/on gate 1")
    more = ("walk to gate 2", "grab lamp 2 from gate_bar_1", "put lamp 2 in/on gate 2")
    assert play(porch(), *other, *more)[2][-1] == "You put the lamp 2 in/on the gate 2. Gone: box 2."


def test_goals_with_equality_and_negation():
    walk = ("survey", "walk to gate 2", "grab box 2 from gate_bar_1", "seal box 2 not box 1")
    compiled, state, texts = play(porch(), *walk)
    assert compiled.won(state) and texts[-1] == "a box 1 stays open"
    compiled, state, _ = play(porch(), *walk[1:])
    assert not compiled.won(state)


def test_a_command_whose_name_ends_in_a_space_is_accepted_as_listed():
    assert play(porch(), "walk to gate 1", "walk to home ")[2][1].startswith("You arrive at home")
