"""Laws that hold on every walk through every game."""

from __future__ import annotations

import threading

from hypothesis import given, settings
from hypothesis import strategies as st

from envs.alfworld import AlfworldEnv, compile_game
from envs.alfworld.engine import NOTHING_HAPPENS
from tests.envs.small_games import kitchen, porch

GAMES = (kitchen(), porch())
games = st.sampled_from(GAMES)
walks = st.lists(st.integers(0, 10**6), max_size=25)


def follow(game, walk):
    """Yields (compiled, state, text, command) along a walk of admissible commands."""
    compiled = compile_game(game)
    state = compiled.initial
    for number in walk:
        commands = compiled.admissible(state)
        command = commands[number % len(commands)]
        state, text = compiled.step(state, command)
        yield compiled, state, text, command


@given(games, walks)
def test_an_admissible_command_never_yields_nothing_happens(game, walk):
    for compiled, state, text, _ in follow(game, walk):
        assert text != NOTHING_HAPPENS
        commands = compiled.admissible(state)
        assert list(commands) == sorted(set(commands))


@given(games, walks, st.text())
def test_any_other_command_leaves_the_state_as_it_was(game, walk, command):
    for compiled, state, _, _ in follow(game, walk):
        listed = compiled.admissible(state)
        if command not in listed and command.strip() not in listed:
            assert compiled.step(state, command) == (state, NOTHING_HAPPENS)


@given(games, walks)
def test_a_state_is_never_changed(game, walk):
    compiled = compile_game(game)
    seen = [(compiled.initial, compiled.admissible(compiled.initial), hash(compiled.initial))]
    seen += [(state, compiled.admissible(state), hash(state)) for _, state, _, _ in follow(game, walk)]
    for state, commands, number in seen:
        assert hash(state) == number and compiled.admissible(state) == commands


@given(games, walks, walks)
def test_a_branch_from_a_snapshot_continues_as_the_original(game, walk, branch):
    env = AlfworldEnv(max_steps=200)
    observation = env.reset(game)

    def play(numbers):
        outcomes, now = [], env.snapshot().observation
        for number in numbers:
            outcome = env.step(now.admissible[number % len(now.admissible)])
            outcomes.append(outcome)
            now = outcome.observation
            if outcome.done:
                break
        return outcomes

    start = env.snapshot()
    first = play(walk)
    env.restore(start)
    play(branch)
    assert env.restore(start) == observation
    assert play(walk) == first


@given(walks)
def test_one_is_in_one_place_and_holds_one_thing(walk):
    for compiled, state, _, _ in follow(kitchen(), walk):
        assert len(compiled.facts(state, "atLocation")) == 1
        held = compiled.facts(state, "holds")
        assert len(held) == len(compiled.facts(state, "holdsAny")) <= 1
        inside = [thing for thing, _ in compiled.facts(state, "inReceptacle")]
        assert len(inside) == len(set(inside)) and not {thing for _, thing in held} & set(inside)


@settings(max_examples=10)
@given(walks)
def test_what_was_worked_out_before_changes_nothing(walk):
    """A game just compiled, with empty memories, says the same as one played for long."""
    worn = list(follow(kitchen(), walk))
    fresh = list(follow(kitchen(goal=f"a new game {len(walk)} {sum(walk)}"), walk))
    assert [text for _, _, text, _ in worn] == [text for _, _, text, _ in fresh]
    assert [c.admissible(s) for c, s, _, _ in worn] == [c.admissible(s) for c, s, _, _ in fresh]


def test_memories_stay_small_on_long_runs():
    compiled = compile_game(kitchen())
    for seed in range(40):
        list(follow(kitchen(), [(seed * 7919 + i * 104729) % 10**6 for i in range(200)]))
    memos = [compiled._relations, compiled._commands, compiled._texts, compiled._moves_of]
    assert all(len(memo) <= memo.size for memo in memos)


def test_threads_share_a_game():
    walk = [i * 7919 for i in range(60)]
    expected = [text for _, _, text, _ in follow(kitchen(), walk)]
    results = []
    threads = [
        threading.Thread(target=lambda: results.append([t for _, _, t, _ in follow(kitchen(), walk)]))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [expected] * 4
