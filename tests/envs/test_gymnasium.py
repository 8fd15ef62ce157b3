"""Gymnasium both ways: our environments pass its checker, its environments pass ours."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial

import gymnasium
import pytest
from gymnasium.spaces import Text
from gymnasium.utils.env_checker import check_env as gymnasium_check

from envs.alfworld import AlfworldEnv
from envs.base import EnvError
from envs.checks import NonConforming, check_env
from envs.from_gymnasium import FromGymnasium, GymTask, Reading
from envs.to_gymnasium import ToGymnasium
from envs.webshop import Catalogue, WebshopEnv, open_shop
from envs.webshop.generate import NOUN_SOURCE, generate_products
from tests.envs.small_games import kitchen, porch

# --- ours, as Gymnasium's -----------------------------------------------------------------------------------


def house(render_mode=None):
    return ToGymnasium(AlfworldEnv(max_steps=12), [kitchen(), porch()], render_mode)


def store(render_mode=None):
    products = Catalogue.from_products(generate_products(60, seed=0), noun_source=NOUN_SOURCE)
    shop = open_shop(products, kind="synthetic", seed=0)
    return ToGymnasium(WebshopEnv(shop, 12), shop.of_split("train")[:5], render_mode)


@pytest.mark.parametrize("make", [house, store])
@pytest.mark.filterwarnings("error")
def test_ours_pass_the_checker_of_gymnasium(make):
    gymnasium.register("sibling-test/Ours-v0", make)
    try:
        gymnasium_check(gymnasium.make("sibling-test/Ours-v0").unwrapped)
    finally:
        del gymnasium.registry["sibling-test/Ours-v0"]


def test_a_trajectory_is_the_same_one_through_gymnasium():
    env, ours = house("ansi"), AlfworldEnv(max_steps=12)
    text, info = env.reset(seed=5, options={"task": "kitchen"})
    observation, rng, ended = ours.reset(kitchen()), random.Random(0), False
    assert info["instruction"] == ours.instruction == "put a hot mug in cabinet"
    while not ended:
        assert (text, info["anchor"]) == (observation.text, observation.anchor)
        assert info["admissible"] == list(observation.admissible)
        assert env.render() == text
        action = rng.choice(info["admissible"])
        text, reward, terminated, truncated, info = env.step(action)
        outcome = ours.step(action)
        observation, ended = outcome.observation, outcome.done
        assert (reward, terminated, truncated) == (outcome.reward, outcome.terminated, outcome.truncated)
        assert (info["success"], info["score"]) == (outcome.success, outcome.score)
    with pytest.raises(EnvError):
        env.step("look")


def test_the_seed_draws_the_task_and_an_unknown_one_is_named():
    env = house()
    drawn = [env.reset(seed=seed)[1]["task"] for seed in range(20)]
    assert set(drawn) == {"kitchen", "porch"}
    assert drawn == [env.reset(seed=seed)[1]["task"] for seed in range(20)]
    with pytest.raises(EnvError, match="'cellar' among 2"):
        env.reset(options={"task": "cellar"})
    with pytest.raises(EnvError, match="2 tasks with 1 different"):
        ToGymnasium(AlfworldEnv(), [kitchen(), kitchen()])
    with pytest.raises(EnvError, match="'human'"):
        house("human")


def test_many_at_once_in_gymnasiums_own_vector():
    envs = gymnasium.vector.SyncVectorEnv([house, house])
    texts, info = envs.reset(seed=[1, 2], options={"task": "kitchen"})
    assert texts[0] == texts[1] == AlfworldEnv().reset(kitchen()).text
    texts, *_ = envs.step(("look", "inventory"))
    assert texts[0] != texts[1]


# --- Gymnasium's, as ours -----------------------------------------------------------------------------------

DIRECTIONS = {"go west": 0, "go south": 1, "go east": 2, "go north": 3}
LAKE = Reading(success=lambda seen: seen.reward == 1.0, text=lambda cell: f"You stand on cell {cell}.")
LAKE_TASKS = [GymTask(f"lake/{seed}", "lake", "train", seed) for seed in range(3)]


def lake(snapshots, max_steps=20, slippery=True):
    make = partial(gymnasium.make, "FrozenLake-v1", is_slippery=slippery)
    return FromGymnasium(make, LAKE, max_steps, commands=DIRECTIONS, snapshots=snapshots)


@pytest.mark.parametrize("snapshots", ["replay", "deepcopy"])
def test_a_random_walk_on_ice_is_deterministic_given_its_seed_and_conforms(snapshots):
    check_env(lambda: lake(snapshots), LAKE_TASKS, steps=15, limit=20)


class OldReset(gymnasium.Wrapper):
    def reset(self, **options):
        return self.env.reset(**options)[0]


class OldStep(gymnasium.Wrapper):
    def step(self, action):
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, reward, terminated or truncated, info


@pytest.mark.parametrize(
    ("older", "message"),
    [
        (OldReset, r"reset gives a int, Gymnasium's gives \(observation, info\). .*older gym"),
        (
            OldStep,
            r"step gives 4 values, Gymnasium's gives \(observation, reward, terminated, truncated, info\)",
        ),
    ],
)
def test_what_an_older_gym_returns_is_refused(older, message):
    env = FromGymnasium(lambda: older(gymnasium.make("FrozenLake-v1")), LAKE, 20, commands=DIRECTIONS)
    with pytest.raises(EnvError, match=message):
        env.reset(LAKE_TASKS[0])
        env.step("go west")


TAXI_COMMANDS = dict(zip(("south", "north", "east", "west", "pick up", "drop off"), range(6), strict=True))


def decode(state):
    """Row, column, where the passenger is (4: in the taxi), where to; as documented."""
    return state // 100, state // 20 % 5, state // 4 % 5, state % 4


def taxi(max_steps=200):
    def arrived(seen):
        _, _, passenger, destination = decode(seen.observation)
        return seen.terminated and passenger == destination

    reading = Reading(success=arrived, text=lambda state: str(decode(int(state))))
    return FromGymnasium(partial(gymnasium.make, "Taxi-v4"), reading, max_steps, commands=TAXI_COMMANDS)


def test_a_taxi_ride_from_gymnasium_is_won_step_by_step():
    """The ride is worked out on the published map: from (0, 0) no wall is in the way on column 0."""
    env = taxi()
    seed = next(
        seed for seed in range(500) if env.reset(GymTask("t", "taxi", "train", seed)).text == "(0, 0, 0, 2)"
    )
    assert env.reset(GymTask("t", "taxi", "train", seed)).text == "(0, 0, 0, 2)"
    outcomes = [env.step(a) for a in ("pick up", "south", "south", "south", "south", "drop off")]
    assert [o.reward for o in outcomes] == [-1, -1, -1, -1, -1, 20]
    assert [o.success for o in outcomes] == [False] * 5 + [True]
    assert outcomes[-1].terminated and not outcomes[-1].truncated and outcomes[-1].score == 1.0


def test_what_means_nothing_costs_a_step_and_changes_nothing():
    env = lake("replay", max_steps=3, slippery=False)
    start = env.reset(LAKE_TASKS[0])
    assert start.admissible == tuple(DIRECTIONS)
    assert env.step("swim").observation == start
    moved = env.step("go east")
    assert moved.observation.text == "You stand on cell 1."
    last = env.step("swim")
    assert (last.truncated, last.terminated, last.success, last.reward) == (True, False, False, 0.0)
    with pytest.raises(EnvError, match="after the end"):
        env.step("go east")


# --- a text environment made for the purpose: what it says and what it is can be chosen ---


class Riddle(gymnasium.Env):
    """Guess a word of three; `flaws` are what adapters must notice."""

    WORDS = ("owl", "elk", "bee")
    observation_space = action_space = Text(100)

    def __init__(self, **flaws):
        self.flaws, self.shared = flaws, []

    def __deepcopy__(self, memo):
        new = Riddle(**self.flaws)
        new.word, new.count, new._np_random = self.word, self.count, self._np_random
        new.shared = self.shared if self.flaws.get("shares") else list(self.shared)
        return new

    def reset(self, *, seed=None, options=None):
        super().reset(seed=None if self.flaws.get("unseeded") else seed)
        self.word = (options or {}).get("word") or str(self.np_random.choice(self.WORDS))
        self.count = 0
        self.shared.clear()
        text = str(self.np_random.integers(10**9)) if self.flaws.get("unseeded") else "Which animal?"
        return text, {"possible": list(self.WORDS), "goal": "guess the animal"}

    def step(self, action):
        self.count += 1
        self.shared.append(action)
        won = action == self.word
        info = {"possible": list(self.WORDS)}
        if won or self.count == 4:
            info |= self.flaws.get("last", {"won": won, "points": 1.0 if won else 0.25})
        ended = self.count == 4
        return f"Guess {len(self.shared)}: {action[:20]}", float(won), won or ended, ended, info


RIDDLE = Reading("won", instruction="goal", admissible="possible")
OWL = GymTask("owl", "riddle", "train", 0, (("word", "owl"),))


def riddle(reading=RIDDLE, snapshots="replay", max_steps=10, **flaws):
    return FromGymnasium(lambda: Riddle(**flaws), reading, max_steps, snapshots=snapshots)


@pytest.mark.parametrize("snapshots", ["replay", "deepcopy"])
def test_a_text_environment_is_read_from_its_information(snapshots):
    env = riddle(replace(RIDDLE, anchor=lambda seen: seen.observation[:5]), snapshots)
    start = env.reset(OWL)
    assert env.instruction == "guess the animal"
    assert (start.text, start.anchor, start.admissible) == ("Which animal?", "Which", ("owl", "elk", "bee"))
    before = env.snapshot()
    lost = env.step("elk")
    assert (lost.success, lost.done, lost.observation.anchor) == (False, False, "Guess")
    assert env.step("owl").success
    assert env.restore(before) == start
    won = env.step("owl")
    assert (won.success, won.terminated, won.observation.text) == (True, True, "Guess 1: owl")


def test_terminated_is_no_success():
    """After four guesses the riddle terminates and truncates at once; nobody has won."""
    env = riddle(replace(RIDDLE, score=lambda seen: seen.info.get("points", 0.0)), max_steps=9)
    env.reset(OWL)
    outcomes = [env.step("elk") for _ in range(4)]
    last = outcomes[-1]
    assert (last.terminated, last.truncated, last.success, last.score) == (True, False, False, 0.25)


def test_solving_the_task_in_the_step_that_truncates_is_a_success():
    env = riddle(max_steps=1)
    env.reset(OWL)
    outcome = env.step("owl")
    assert (outcome.success, outcome.terminated, outcome.truncated) == (True, True, False)


def test_what_cannot_be_read_is_named():
    env = riddle(last={"victory": True})
    env.reset(OWL)
    assert not env.step("elk").success  # an unfinished trajectory need not say so
    with pytest.raises(EnvError, match=r"success is to be read from info\['won'\].*'possible', 'victory'"):
        env.step("owl")
    with pytest.raises(EnvError, match=r"observation is a int.*text"):
        FromGymnasium(lambda: gymnasium.make("FrozenLake-v1"), Reading("won"), 5).reset(OWL)
    for options in ({"max_steps": 0}, {"snapshots": "copy"}):
        with pytest.raises(EnvError, match="replay or deepcopy"):
            riddle(**options)
    with pytest.raises(EnvError, match="snapshot before reset"):
        riddle().snapshot()


def test_an_environment_that_does_not_repeat_is_not_replayed_silently():
    env = riddle(unseeded=True)
    env.reset(OWL)
    moment = env.snapshot()
    with pytest.raises(EnvError, match="does not repeat after 0 actions"):
        env.restore(moment)


def test_a_deep_copy_that_shares_state_is_noticed():
    env = riddle(snapshots="deepcopy", shares=True)
    env.reset(OWL)
    env.snapshot()
    with pytest.raises(EnvError, match="does not behave as the original.*replay"):
        env.step("elk")
    with pytest.raises((EnvError, NonConforming)):
        check_env(lambda: riddle(snapshots="deepcopy", shares=True), [OWL])
