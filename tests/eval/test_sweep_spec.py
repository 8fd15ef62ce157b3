"""Sweep files: W&B's format read, points enumerated, drawn and proposed; and what is refused."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from wandb.sdk.launch.sweeps import utils as wandb_sweeps

from configs.load import load
from configs.text import ConfigError, read_yaml
from eval.experiments import points
from eval.experiments.point_search import Bayes, Race
from eval.experiments.spec import EarlyTerminate, Parameter, read_sweep

ROOT = Path(__file__).resolve().parents[2]
HEAD = """
command: ["${env}", "${program}", train, alfworld_cpu, train.updates=2, "${args_no_hyphens}"]
metric: {name: eval/success, goal: maximize}
"""


@pytest.fixture
def written(tmp_path):
    def write(text):
        path = tmp_path / "sweep.yaml"
        path.write_text(HEAD + text)
        return path

    return write


def test_a_grid_in_the_order_of_the_file_with_seeds_apart(written):
    sweep, _ = read_sweep(
        written(
            "method: grid\nparameters:\n  credit.scpo.theta: {values: [0.6, 0.9]}\n"
            "  train: {parameters: {lr: {values: [3e-4, 6e-4]}, epochs: {value: 2}}}\n"
            "  seed: {values: [3, 4]}\n"
        )
    )
    assert sweep.experiment() == ("alfworld_cpu", ["train.updates=2"])
    assert points.seeds(sweep) == [3, 4]
    assert points.grid(sweep) == [
        {"credit.scpo.theta": theta, "train.lr": lr, "train.epochs": 2}
        for theta in (0.6, 0.9)
        for lr in (3e-4, 6e-4)
    ]


def test_the_command_is_the_one_that_wandbs_own_agent_builds(written):
    sweep, _ = read_sweep(
        written("method: grid\nparameters:\n  credit.scpo.theta: {values: [0.75]}\n  credit: {value: scpo}\n")
    )
    (point,) = points.grid(sweep)
    agent = wandb_sweeps.create_sweep_command_args(
        {"args": {name: {"value": value} for name, value in point.items()}}
    )
    assert agent["args_no_hyphens"] == points.overrides(point)
    assert load("alfworld_cpu", agent["args_no_hyphens"]).config.credit.stages["scpo"]["theta"] == 0.75


@pytest.mark.parametrize(
    ("parameter", "law"),
    [
        ({"min": 1, "max": 4}, stats.randint(1, 5)),
        ({"min": 0.5, "max": 2.0}, stats.uniform(0.5, 1.5)),
        ({"distribution": "log_uniform", "min": -2.0, "max": 1.0}, stats.loguniform(math.exp(-2), math.e)),
        ({"distribution": "log_uniform_values", "min": 1e-6, "max": 1e-3}, stats.loguniform(1e-6, 1e-3)),
        (
            {"distribution": "inv_log_uniform", "min": 1.0, "max": 2.0},
            stats.loguniform(math.exp(-2), math.exp(-1)),
        ),
        ({"distribution": "inv_log_uniform_values", "min": 0.1, "max": 10.0}, stats.loguniform(0.1, 10)),
        ({"distribution": "normal", "mu": 3.0, "sigma": 2.0}, stats.norm(3, 2)),
        ({"distribution": "log_normal", "mu": 1.0, "sigma": 0.5}, stats.lognorm(0.5, scale=math.e)),
        ({"distribution": "beta", "a": 2.0, "b": 5.0}, stats.beta(2, 5)),
    ],
)
def test_draws_follow_the_distribution_they_are_named_after(parameter, law):
    grid = (np.arange(400) + 0.5) / 400
    drawn = np.array([points.draw(Parameter(**parameter), u) for u in grid])
    if law.dist.name == "randint":
        assert [np.sum(drawn == value) for value in (1, 2, 3, 4)] == [100] * 4
        assert all(isinstance(points.draw(Parameter(**parameter), u), int) for u in (0.1, 0.9))
    else:
        assert np.abs(np.sort(law.cdf(drawn)) - grid).max() < 1e-9


def test_quantised_and_weighted_draws():
    quantised = Parameter(distribution="q_uniform", min=0.0, max=1.0, q=0.25)
    assert {points.draw(quantised, u) for u in np.linspace(0.001, 0.999, 99)} == {0.0, 0.25, 0.5, 0.75, 1.0}
    weighted = Parameter(values=["a", "b"], probabilities=[0.25, 0.75])
    assert [points.draw(weighted, u) for u in (0.01, 0.24, 0.26, 0.99)] == ["a", "a", "b", "b"]


def test_random_points_are_distinct_and_the_same_every_time(written):
    text = "method: random\nparameters: {train.lr: {min: 0.1, max: 1.0}, train.epochs: {values: [1, 2]}}\n"
    sweep, _ = read_sweep(written(text))
    drawn = points.random(sweep, 5, seed=1)
    assert drawn == points.random(sweep, 5, seed=1) != points.random(sweep, 5, seed=2)
    assert drawn[:3] == points.random(sweep, 3, seed=1), "asking for more keeps the first"
    few, _ = read_sweep(written("method: random\nparameters: {train.epochs: {values: [1, 2]}}\n"))
    with pytest.raises(ConfigError, match="only 2 distinct points, 3 were asked for"):
        points.random(few, 3, seed=0)


def test_values_survive_the_command_line():
    for value in (0.1 + 0.2, 1e-30, True, None, "true", "null", "3", "words", [1, 2]):
        (item,) = points.overrides({"logging.tags": value})
        assert read_yaml(item.partition("=")[2]) == value


REFUSED = {
    "empty values": ("method: grid\nparameters: {seed: {values: []}}", "`parameters.seed`.values is empty"),
    "no parameters": ("method: grid\nparameters: {}", "nothing to sweep over"),
    "twice": ("method: grid\nparameters: {train.lr: {values: [1, 1]}}", "lists 1 twice"),
    "misspelt": ("methd: grid\nparameters: {seed: {value: 1}}", "unknown key `methd`.*did you mean `method`"),
    "misspelt below": ("method: grid\nparameters: {seed: {vales: [1]}}", "did you mean `values`"),
    "misspelt in early termination": (
        "method: grid\nparameters: {seed: {value: 1}}\nearly_terminate: {type: hyperband, min_itr: 2}",
        "unknown key `early_terminate.min_itr`.*did you mean `min_iter`",
    ),
    "range in a grid": (
        "method: grid\nparameters: {train.lr: {min: 0.1, max: 1.0}}",
        "a grid needs `values`",
    ),
    "half a range": ("method: random\nparameters: {train.lr: {min: 0.1}}", "needs both `min` and `max`"),
    "upside down": ("method: random\nparameters: {train.lr: {min: 1.0, max: 0.1}}", "min must be below max"),
    "log of 0": (
        "method: random\nparameters: {train.lr: {distribution: log_uniform_values, min: 0, max: 1}}",
        "must be above 0",
    ),
    "nothing said": ("method: grid\nparameters: {train.lr: {}}", "says neither"),
    "shares": (
        "method: random\nparameters: {train.lr: {values: [1, 2], probabilities: [0.5, 0.6]}}",
        "with sum 1",
    ),
    "seeds drawn": ("method: random\nparameters: {seed: {min: 1, max: 9}}", "must list its seeds"),
    "early": (
        "method: grid\nparameters: {seed: {value: 1}}\nearly_terminate: {type: hyperband}",
        "needs min_iter, or max_iter",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_swept_is_refused(written, name):
    text, message = REFUSED[name]
    with pytest.raises(ConfigError, match=message):
        read_sweep(written(text))


def test_a_command_that_does_not_train_is_refused(tmp_path):
    path = tmp_path / "sweep.yaml"
    path.write_text("command: [eval, x]\nmethod: grid\nmetric: {name: x}\nparameters: {seed: {value: 1}}\n")
    with pytest.raises(ConfigError, match="must say `train` and an experiment"):
        read_sweep(path)[0].experiment()


# --- what optuna decides -----------------------------------------------------------------------------------


def search(written, tmp_path, name):
    text = "method: bayes\nparameters: {x: {min: -2.0, max: 2.0}, k: {values: [a, b]}, c: {value: 7}}\n"
    sweep, _ = read_sweep(written(text))
    return Bayes(sweep, tmp_path / f"{name}.jsonl", seed=0)


def value(point):
    return -((point["x"] - 0.5) ** 2) - (point["k"] == "a")


def test_bayes_goes_where_it_is_better_and_a_kill_changes_nothing(written, tmp_path):
    whole = search(written, tmp_path, "whole")
    for _ in range(25):
        whole.propose({i: value(point) for i, point in enumerate(whole.points)})
    found = [value(point) for point in whole.points]
    assert max(found) > -0.01, "0 is the best there is"
    assert np.mean(found[10:]) > np.mean(found[:10]) + 1, "the first ten are drawn at random"
    assert all(point["c"] == 7 for point in whole.points)

    first = search(written, tmp_path, "killed")
    for _ in range(6):
        first.propose({i: value(point) for i, point in enumerate(first.points)})
    with (tmp_path / "killed.jsonl").open("a") as file:
        file.write('{"x": 0.')  # killed while writing
    again = search(written, tmp_path, "killed")
    for _ in range(3):
        again.propose({i: value(point) for i, point in enumerate(again.points)})
    assert again.points == whole.points[:9]
    assert [json.loads(line) for line in (tmp_path / "killed.jsonl").read_text().splitlines()] == again.points


def test_bayes_counts_what_runs_and_what_failed(written, tmp_path):
    bayes = search(written, tmp_path, "running")
    bayes.propose({})
    bayes.propose({0: None})
    assert len(bayes.propose({0: math.nan, 1: 0.5})) == 3


def test_bayes_refuses_what_it_cannot_search(written, tmp_path):
    sweep, _ = read_sweep(written("method: bayes\nparameters: {x: {distribution: normal}}\n"))
    with pytest.raises(ConfigError, match="`parameters.x` is normal, which method bayes cannot search"):
        Bayes(sweep, tmp_path / "points.jsonl", 0)


def test_the_race_by_hand():
    """eta 2, first rung after 2 values: a later run must be in the better half of those that came so far."""
    race = Race(EarlyTerminate(type="hyperband", min_iter=2, eta=2), "maximize")
    assert not race.lost("good", [0.1])
    assert not race.lost("good", [0.1, 0.8])
    assert not race.lost("bad", [0.9])  # before the rung nothing is decided
    assert race.lost("bad", [0.9, 0.2])
    assert not race.lost("better", [0.0, 0.9])
    assert not race.lost("good", [0.1, 0.8, 0.8, 0.9])  # second rung, the first there
    assert race.lost("better", [0.0, 0.9, 0.9, 0.5])
