"""Loading game sets: folders, compact files, and every way they can be broken."""

from __future__ import annotations

import json
import lzma
import pickle
import warnings

import pytest

from envs.alfworld import DataError, Game, compile_game, load_folder, load_games, load_jsonl, write_jsonl
from envs.alfworld import game as game_module
from envs.alfworld.game import packaged_text
from envs.base import Task, task_digest
from tests.envs.small_games import kitchen, porch

FIELDS = ("id", "family", "split", "goal", "pddl_problem", "pddl_domain", "grammar", "pddl_params")


def same(one: Game, other: Game) -> bool:
    return all(getattr(one, field) == getattr(other, field) for field in FIELDS)


def write_trial(root, task, trial="trial_1", *, solvable=True, family="pick_and_place_simple", game=None):
    """Writes one trial folder as `alfworld-download` leaves it."""
    game = game or porch()
    folder = root / task / trial
    folder.mkdir(parents=True)
    body = {
        "pddl_domain": game.pddl_domain,
        "grammar": game.grammar.replace("UNKNOWN GOAL", game.goal),
        "pddl_problem": game.pddl_problem,
        "solvable": solvable,
        "walkthrough": [],
    }
    (folder / "game.tw-pddl").write_text(json.dumps(body))
    meta = {"task_type": family, "pddl_params": {"object_target": "Box"}}
    (folder / "traj_data.json").write_text(json.dumps(meta))
    return folder


def test_a_game_is_a_task_and_stays_small():
    game = kitchen()
    assert isinstance(game, Task)
    assert repr(game) == "Game(id='kitchen', split='train', goal='put a hot mug in cabinet')"
    assert len(pickle.dumps(game)) < len(game.pddl_problem) / 2
    assert same(pickle.loads(pickle.dumps(game)), game)


@pytest.mark.parametrize("name", ["games.jsonl", "games.jsonl.xz"])
def test_what_is_written_is_read_back(tmp_path, name):
    path = tmp_path / "deep" / name
    games = [kitchen(), porch(), kitchen(id="seen", split="valid_seen")]
    assert write_jsonl(path, games) == 3
    read = load_jsonl(path)
    assert all(same(one, other) for one, other in zip(read, games, strict=True))
    assert [game.id for game in load_games(path, "valid_seen")] == ["seen"]


def test_the_shared_format_names_games_by_task_and_trial(tmp_path):
    row = {
        "split": "train",
        "task": "pick-Mug",
        "trial": "t1",
        "task_type": "pick_and_place_simple",
        "goal": "put a mug in cabinet",
        "pddl_params": {},
        "pddl_problem": kitchen().pddl_problem,
    }
    (tmp_path / "games.jsonl").write_text(json.dumps(row) + "\n\n")
    (game,) = load_jsonl(tmp_path / "games.jsonl")
    assert game.id == "train/pick-Mug/t1" and game.pddl_domain is None and game.grammar is None


def test_a_folder_is_read_as_the_download_leaves_it(tmp_path):
    root = tmp_path / "json_2.1.1" / "train"
    write_trial(root, "pick-B")
    write_trial(root, "pick-A", game=porch(goal='seal a \\"big\\" box'))
    write_trial(root, "pick-C", solvable=False)
    write_trial(root, "pick-movable-D")
    write_trial(root, "pick-ESliced")
    write_trial(root, "pick-F", family="something_else")
    (root / "pick-G" / "trial_1").mkdir(parents=True)
    for path in (tmp_path, tmp_path / "json_2.1.1", root):
        with pytest.warns(UserWarning, match="has 2 solvable games; the official train split has 3553"):
            games = load_games(path, "train")
        assert [game.id for game in games] == ["train/pick-A/trial_1", "train/pick-B/trial_1"]
    first, second = games
    assert first.goal == 'seal a "big" box' and second.goal == "seal a box and ring"
    assert first.grammar is second.grammar and first.pddl_domain is second.pddl_domain
    assert compile_game(second).intro.endswith("Your task is to: seal a box and ring.")
    assert second.pddl_params == {"object_target": "Box"} and second.family == "pick_and_place_simple"


def test_a_split_of_ones_own_is_not_counted(tmp_path):
    write_trial(tmp_path, "pick-A")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(load_folder(tmp_path, "mine")) == 1


def test_games_come_in_the_order_of_their_ids_however_they_are_stored(tmp_path):
    names = ["pick-A/trial_2", "pick-A-B/trial_1", "pick-A/trial_1", "look-Z/trial_9"]
    games = [porch(id=f"mine/{name}", split="mine") for name in names]
    for game in games:
        write_trial(tmp_path / "folder", *game.id.split("/")[1:], game=game)
    write_jsonl(tmp_path / "games.jsonl", games)
    write_jsonl(tmp_path / "reversed.jsonl.xz", reversed(games))
    expected = sorted(game.id for game in games)
    for place in ("folder", "games.jsonl", "reversed.jsonl.xz"):
        assert [game.id for game in load_games(tmp_path / place, "mine")] == expected


def test_a_game_that_is_there_twice_is_named(tmp_path):
    write_jsonl(tmp_path / "games.jsonl", [kitchen(), porch(), kitchen()])
    with pytest.raises(DataError, match="1 games of split 'train' more than once, such as 'kitchen'"):
        load_games(tmp_path / "games.jsonl", "train")


def test_a_game_that_brings_the_packaged_texts_is_the_same_game():
    game = kitchen()
    texts = {"pddl_domain": packaged_text("alfred.pddl"), "grammar": packaged_text("alfred.twl2")}
    assert task_digest(kitchen(**texts)) == task_digest(game)
    for part, text in texts.items():
        assert task_digest(kitchen(**texts | {part: f"{text} "})) != task_digest(game)
    for changes in ({"goal": "put a cold mug in cabinet"}, {"pddl_problem": game.pddl_problem + " "}):
        assert task_digest(kitchen(**changes)) != task_digest(game)


def test_a_folder_may_hold_compact_splits(tmp_path):
    write_jsonl(tmp_path / "valid_seen.jsonl.xz", [kitchen(split="valid_seen")])
    assert len(load_games(tmp_path, "valid_seen")) == 1


def test_no_games_is_an_error_that_says_how_to_get_them(tmp_path):
    write_jsonl(tmp_path / "games.jsonl", [kitchen()])
    (tmp_path / "empty.jsonl").write_text("")
    (tmp_path / "folder").mkdir()
    for path in ("games.jsonl", "empty.jsonl", "folder", "nowhere"):
        with pytest.raises(DataError, match="data alfworld --generate.*alfworld-download"):
            load_games(tmp_path / path, "valid_unseen")
    with pytest.raises(DataError, match="nowhere"):
        load_folder(tmp_path / "nowhere", "train")
    with pytest.raises(DataError, match="nowhere"):
        load_jsonl(tmp_path / "nowhere.jsonl")


@pytest.mark.parametrize(
    "damage",
    [
        "{",
        "[]",
        "3",
        '{"split": "train"}',
        '{"split": "train", "id": "x", "task_type": "y", "pddl_problem": "z"}',
    ],
)
def test_a_corrupt_line_is_named_and_skipped_only_when_told(tmp_path, damage):
    path = tmp_path / "games.jsonl"
    write_jsonl(path, [kitchen()])
    path.write_text(damage + "\n" + path.read_text())
    with pytest.raises(DataError, match=r"games\.jsonl, line 1"):
        load_games(path, "train")
    with pytest.warns(UserWarning, match="line 1"):
        assert len(load_games(path, "train", skip_corrupt=True)) == 1


def test_a_truncated_archive_is_named(tmp_path):
    path = tmp_path / "games.jsonl.xz"
    lines = [json.dumps({"id": str(i), "split": "train", "task_type": "x", "goal": "y",
                         "pddl_problem": kitchen().pddl_problem}) for i in range(200)]  # fmt: skip
    path.write_bytes(lzma.compress("\n".join(lines).encode())[:-50])
    with pytest.raises(DataError, match=r"games\.jsonl\.xz' is damaged after line"):
        load_games(path, "train")
    with pytest.warns(UserWarning, match="damaged"):
        assert load_games(path, "train", skip_corrupt=True)


@pytest.mark.parametrize("name", ["game.tw-pddl", "traj_data.json"])
def test_a_corrupt_game_file_is_named(tmp_path, name):
    folder = write_trial(tmp_path, "pick-A")
    write_trial(tmp_path, "pick-B")
    (folder / name).write_text('{"solvable": true')
    with pytest.raises(DataError, match="pick-A.trial_1"):
        load_games(tmp_path, "mine")
    with pytest.warns(UserWarning, match="pick-A"):
        assert len(load_games(tmp_path, "mine", skip_corrupt=True)) == 1


def test_a_grammar_without_a_task_sentence_is_corrupt(tmp_path):
    write_trial(tmp_path, "pick-A", game=porch(grammar='grammar :: """{}""";'))
    with pytest.raises(DataError, match="Your task is to"):
        load_games(tmp_path, "mine")


def test_a_missing_package_is_told(monkeypatch):
    packaged_text.cache_clear()
    monkeypatch.setattr(game_module.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DataError, match="is not installed.*make setup"):
        compile_game(kitchen(id="unseen", goal="something not compiled before"))
    packaged_text.cache_clear()
