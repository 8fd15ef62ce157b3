"""Generated ALFWorld games: same seed same games, disjoint splits, all solvable, much like the real ones."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from envs.alfworld.engine import compile_game
from envs.alfworld.env import AlfworldEnv
from envs.alfworld.games import load_jsonl, write_jsonl
from envs.alfworld.generate import SPLITS, generate_games, official_proportions, summary
from envs.alfworld.goals import FAMILIES
from envs.alfworld.layouts import ROOMS, TRAIN_LAYOUTS, layout
from envs.alfworld.solver import solve

# Mean [receptacles, pickable objects] of the official train games.
MEASURED = {
    "kitchen": (33.5, 44.9),
    "living": (14.8, 20.2),
    "bedroom": (14.6, 24.4),
    "bathroom": (14.4, 18.0),
}


@pytest.fixture(scope="module")
def full_size():
    return generate_games("train", 300, seed=11, difficulty=1.0)


@pytest.fixture(scope="module")
def by_split():
    return {split: generate_games(split, 40, seed=3, difficulty=0.3) for split in SPLITS}


def layout_key(game):
    return game.id.rsplit("-", 2)[1]


def content(game):
    """All that a game holds, comparable."""
    names = ("id", "family", "split", "goal", "pddl_problem", "pddl_domain", "grammar", "pddl_params")
    return {name: getattr(game, name) for name in names}


def count(game, predicate):
    return game.pddl_problem.count(f"\n({predicate} ")


def mean(values):
    values = list(values)
    return sum(values) / len(values)


def test_same_seed_same_games_and_more_games_start_alike():
    def contents(n, seed):
        return [content(g) for g in generate_games("train", n, seed=seed, difficulty=0.4)]

    first = contents(12, 5)
    assert contents(12, 5) == first
    assert contents(5, 5) == first[:5]
    assert not {c["id"] for c in contents(12, 6)} & {c["id"] for c in first}


def test_games_survive_a_file(tmp_path, by_split):
    write_jsonl(tmp_path / "games.jsonl", by_split["train"])
    read = load_jsonl(tmp_path / "games.jsonl")
    assert [content(g) for g in read] == [content(g) for g in by_split["train"]]


def test_ids_are_unique(full_size, by_split):
    games = [*full_size, *(g for games in by_split.values() for g in games)]
    assert len({g.id for g in games}) == len(games)


def test_splits_share_no_problem_and_unseen_rooms_are_never_trained_on(by_split):
    texts = {split: {g.pddl_problem for g in games} for split, games in by_split.items()}
    assert len(set().union(*texts.values())) == sum(len(games) for games in by_split.values())
    number = {split: {int(layout_key(g)[2:]) for g in games} for split, games in by_split.items()}
    assert max(number["train"] | number["valid_seen"]) < TRAIN_LAYOUTS <= min(number["valid_unseen"])


@pytest.mark.parametrize("seed", [0, 1])
def test_even_the_smallest_games_are_disjoint(seed):
    """At difficulty 0 rooms are nearly alike: what keeps the splits apart is the digest of the problem."""
    games = [g for split in SPLITS for g in generate_games(split, 40, seed=seed, difficulty=0.0)]
    assert len({g.pddl_problem for g in games}) == len(games)


def test_every_family_and_room_is_there_in_official_proportions(full_size):
    counts = Counter(g.family for g in full_size)
    official = official_proportions()
    for family in FAMILIES:
        expected = official[family] / sum(official.values())
        assert abs(counts[family] / len(full_size) - expected) < 0.08
    assert set(summary(full_size)["rooms"]) == set(ROOMS)


def test_families_can_be_chosen():
    games = generate_games("train", 10, seed=0, difficulty=0.2, families=["look_at_obj_in_light"])
    assert {g.family for g in games} == {"look_at_obj_in_light"}
    weights = dict.fromkeys(FAMILIES, 1)
    even = Counter(g.family for g in generate_games("train", 150, seed=0, difficulty=0.0, families=weights))
    assert all(12 <= even[family] <= 40 for family in FAMILIES)
    with pytest.raises(ValueError, match="pick_me"):
        generate_games("train", 1, seed=0, families=["pick_me"])
    with pytest.raises(ValueError, match="difficulty"):
        generate_games("train", 1, seed=0, difficulty=1.5)
    with pytest.raises(ValueError, match="split"):
        generate_games("test", 1, seed=0)


def test_the_solver_wins_each_game_and_counts_down(by_split):
    for games in by_split.values():
        for game in games:
            assert 2 <= len(solve(game)) <= 14
    for game in by_split["train"][:20]:
        compiled = compile_game(game)
        state, plan = compiled.initial, solve(game)
        for done, command in enumerate(plan, 1):
            state, _ = compiled.step(state, command)
            assert len(solve(game, state)) == len(plan) - done


def test_the_solver_wins_from_wherever_a_random_walk_leads(by_split):
    rng = random.Random(0)
    for game in by_split["train"][:30]:
        compiled = compile_game(game)
        state = compiled.initial
        for _ in range(12):
            state, _ = compiled.step(state, rng.choice(compiled.admissible(state)))
            for command in (plan := solve(game, state)):
                assert command in compiled.admissible(state) or command != plan[0]


def test_full_size_is_near_the_measured_rooms(full_size):
    for room, (receptacles, objects) in MEASURED.items():
        games = [g for g in full_size if summary([g])["rooms"].get(room)]
        assert mean(count(g, "receptacleType") for g in games) == pytest.approx(receptacles, rel=0.2)
        assert mean(count(g, "pickupable") for g in games) == pytest.approx(objects, rel=0.2)


def test_copies_closed_places_and_shared_locations_are_near_the_measured_ones(full_size):
    one = [g for g in full_size if g.family != "pick_two_obj_and_place"]
    assert 1.9 < summary(one)["mean copies"] < 2.5  # measured 2.16
    closed = total = shares = 0
    for game in full_size:
        lines = game.pddl_problem.splitlines()
        facts = [line.strip("()").split() for line in lines if line.endswith(")") and line != ")"]
        openable = {f[1] for f in facts if f[0] == "openable"}
        target = f"{game.pddl_params['object_target']}_bar_"
        places = [f[2] for f in facts if f[0] == "inReceptacle" and f[1].startswith(target)]
        closed += sum(p in openable for p in places)
        total += len(places)
        at = Counter(f[2] for f in facts if f[0] == "receptacleAtLocation")
        shares += max(at.values()) > 1
    assert 0.10 < closed / total < 0.22  # measured 0.15 to 0.175
    assert 0.6 < shares / len(full_size) < 0.9  # measured 211 of 300


def test_some_drawers_and_cabinets_have_no_door():
    kinds = Counter(
        (r.kind, r.openable)
        for room in ROOMS
        for i in range(TRAIN_LAYOUTS)
        for r in layout(room, i).receptacles
    )
    for kind in ("Drawer", "Cabinet"):
        share = kinds[kind, False] / (kinds[kind, True] + kinds[kind, False])
        assert 0.1 < share < 0.25
    for kind in ("Fridge", "Microwave"):
        assert not kinds[kind, False]


def test_harder_games_are_larger():
    sizes = [summary(generate_games("train", 60, seed=2, difficulty=d)) for d in (0.0, 0.25, 0.5, 0.75, 1.0)]
    for part in ("mean receptacles", "mean objects"):
        means = [s[part] for s in sizes]
        assert means == sorted(means)
    assert 5.0 <= sizes[0]["mean receptacles"] <= 7.0


def test_a_smaller_room_is_part_of_the_larger(full_size):
    room = layout("kitchen", 3)
    sizes = [room.shrunk(d, ["Fridge"]) for d in (0.0, 0.5, 1.0)]
    assert set(sizes[0]) <= set(sizes[1]) <= set(sizes[2]) == set(room.receptacles)
    assert any(r.kind == "Fridge" for r in sizes[0])


def test_names_come_out_right():
    env = AlfworldEnv()
    seen = set()
    for game in generate_games("train", 30, seed=4, families=["pick_clean_then_place_in_recep"]):
        names = env.reset(game).text
        seen |= {word for word in names.replace(",", " ").split() if word.endswith("basin")}
    assert seen == {"sinkbasin", "bathtubbasin"}
