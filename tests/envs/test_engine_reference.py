"""The engine against transcripts of the reference engine, byte for byte.

The transcripts and the official games are no part of this repository: `SIBLING_SHARED` names the folder that
holds them (`data/alfworld`, `golden/alfworld`), by default `../shared` beside the repository.
"""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import pytest

from envs.alfworld import AlfworldEnv, DataError, compile_game, load_jsonl, write_jsonl
from envs.alfworld.game import GOAL_MARK, packaged_text
from envs.alfworld.parity import run_parity
from tests.envs.small_games import WINNING_WALK, kitchen, porch

SHARED = Path(os.environ.get("SIBLING_SHARED") or Path(__file__).parents[2].parent / "shared")
needs_shared = pytest.mark.skipif(
    not (SHARED / "golden" / "alfworld").is_dir(),
    reason=f"no transcripts under {SHARED}: set SIBLING_SHARED to the folder that holds golden/alfworld",
)


def compare(generation, every):
    return run_parity(
        SHARED / "data" / "alfworld" / f"games{generation}.jsonl.xz",
        SHARED / "golden" / "alfworld" / f"transcripts{generation}.jsonl.xz",
        progress=False,
        every=every,
    )


def flat_porch():
    """The porch with lamps and boxes only: the reference sorts levels of types in its own way."""
    problem = porch().pddl_problem.replace("box_bar_2 - box vase_bar_1 - thing", "box_bar_2 box_bar_3 - box")
    return porch(pddl_problem=problem.replace("vase_bar_1", "box_bar_3"))


@pytest.mark.reference
@needs_shared
@pytest.mark.parametrize(("generation", "every", "games"), [("", 5, 48), ("_pre04", 1, 24)])
def test_the_engine_repeats_the_reference(generation, every, games):
    result = compare(generation, every)
    assert result.failures == ()
    assert (result.passed, result.failed) == (games, 0)


@pytest.mark.reference
@pytest.mark.slow
@needs_shared
def test_the_engine_repeats_the_reference_on_every_transcript():
    result = compare("", 1)
    assert (result.passed, result.failed, result.failures) == (240, 0, ())


@pytest.mark.reference
@pytest.mark.slow
@needs_shared
def test_every_official_game_compiles():
    for game in load_jsonl(SHARED / "data" / "alfworld" / "games.jsonl.xz"):
        compiled = compile_game(game)
        assert game.goal in compiled.intro and not compiled.won(compiled.initial)


def reference_env(game, folder):
    """The reference engine with `game` loaded."""
    textworld = pytest.importorskip(
        "textworld", reason="the reference engine comes with `make setup-reference`"
    )
    agents = pytest.importorskip("alfworld.agents.environment.alfred_tw_env")
    pddl = pytest.importorskip("textworld.envs.pddl")
    body = {
        "pddl_domain": game.pddl_domain or packaged_text("alfred.pddl"),
        "grammar": (game.grammar or packaged_text("alfred.twl2")).replace(GOAL_MARK, game.goal),
        "pddl_problem": game.pddl_problem,
        "solvable": True,
    }
    path = folder / "game.tw-pddl"
    path.write_text(json.dumps(body))
    inner = pddl.PddlEnv(textworld.EnvInfos(won=True, admissible_commands=True))
    env = agents.AlfredInfos(agents.AlfredDemangler(inner, shuffle=False))
    env.load(str(path))
    return env


@pytest.mark.reference
@pytest.mark.slow
@pytest.mark.parametrize("make", [kitchen, flat_porch])
def test_the_engine_walks_beside_the_reference(make, tmp_path):
    game = make()
    env = reference_env(game, tmp_path)
    compiled, theirs, rng = compile_game(game), env.reset(), random.Random(0)
    state, text = compiled.initial, compiled.intro
    for _ in range(80):
        assert text == theirs.feedback
        assert list(compiled.admissible(state)) == theirs["admissible_commands"]
        assert compiled.won(state) == theirs["won"]
        # The reference strips a command before it looks it up, so it refuses what it lists with a space.
        command = rng.choice([c for c in (*compiled.admissible(state), "no such command") if c == c.strip()])
        state, text = compiled.step(state, command)
        theirs, _, _ = env.step(command)


def transcript(**changes):
    """A transcript of the small kitchen; `changes` go into its last step."""
    env = AlfworldEnv()
    first = env.reset(kitchen())
    steps = [{"a": None, "obs": first.text, "adm": list(first.admissible), "won": False}]
    for command in WINNING_WALK:
        o = env.step(command)
        seen = {"a": command, "obs": o.observation.text, "adm": list(o.observation.admissible)}
        steps.append(seen | {"won": o.success, "score": int(o.score), "done": o.terminated})
    steps[-1] |= changes
    return {"split": "train", "task": "k", "trial": "1", "walks": [{"kind": "expert", "steps": steps}]}


def run_small(tmp_path, row):
    write_jsonl(tmp_path / "games.jsonl", [kitchen(id="train/k/1")])
    (tmp_path / "transcripts.jsonl").write_text(json.dumps(row) + "\n")
    return run_parity(tmp_path / "games.jsonl", tmp_path / "transcripts.jsonl", progress=False)


def test_parity_passes_on_equal_transcripts(tmp_path):
    result = run_small(tmp_path, transcript())
    assert (result.passed, result.failed, result.steps) == (1, 0, len(WINNING_WALK) + 1)


@pytest.mark.parametrize("key", ["obs", "adm", "won", "score", "done"])
def test_parity_reports_a_difference_in_any_field(tmp_path, key):
    wrong = {"obs": "something else", "adm": ["help", "sing"], "won": False, "score": 0, "done": False}
    result = run_small(tmp_path, transcript(**{key: wrong[key]}))
    assert result.failed == 1
    word = "missing ['sing']" if key == "adm" else key
    assert "train/k/1, expert walk, step 8" in result.failures[0] and word in result.failures[0]


def test_parity_reports_a_game_that_is_missing_or_broken(tmp_path):
    result = run_small(tmp_path, transcript() | {"trial": "2"})
    assert result.failed == 1 and "is not in" in result.failures[0]
    write_jsonl(tmp_path / "games.jsonl", [kitchen(id="train/k/1", pddl_problem="(define")])
    result = run_parity(tmp_path / "games.jsonl", tmp_path / "transcripts.jsonl", progress=False)
    assert result.failed == 1 and "is not in" in result.failures[0]


def test_parity_needs_transcripts(tmp_path, capsys):
    write_jsonl(tmp_path / "games.jsonl", [kitchen()])
    with pytest.raises(DataError, match="No transcripts"):
        run_parity(tmp_path / "games.jsonl", tmp_path / "none.jsonl")
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(DataError, match="0 transcripts"):
        run_parity(tmp_path / "games.jsonl", tmp_path / "empty.jsonl")
    (tmp_path / "broken.jsonl").write_text("{")
    with pytest.raises(DataError, match="damaged"):
        run_parity(tmp_path / "games.jsonl", tmp_path / "broken.jsonl")
