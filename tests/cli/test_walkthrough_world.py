"""CONTRIBUTING's "Adding an environment", followed to the letter."""

import json

import pytest

from tests.walkthrough import lint, run_in, walked

TITLE = "Adding an environment"


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A copy of the project with the page's world in it, and what the page made."""
    return walked(tmp_path_factory.mktemp("world"), TITLE)


def test_the_page_touches_the_worlds_folder_its_line_and_its_presets(tree):
    assert {path.rpartition("/")[0] for path in tree[1]} == {"envs/countdown", "configs", "tests/envs"}


def test_lint_and_the_tests_of_the_page_pass(tree):
    lint(tree[0], *tree[1], "configs/worlds.py")
    run_in(tree[0], "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/envs/test_countdown.py")


def test_everything_that_goes_over_all_worlds_and_presets_takes_it(tree):
    tests = ("tests/cli/test_docs.py", "tests/configs/test_layers.py")
    run_in(tree[0], "-m", "pytest", "-q", "-p", "no:cacheprovider", "-x", *tests)


def test_the_commands_of_the_page_work(tree):
    assert "countdown keeps the contract" in run_in(
        tree[0], "run.py", "check-env", "countdown_cpu", "-n", "2"
    )
    shown = run_in(tree[0], "run.py", "show", "countdown_cpu", "--changed")
    assert "env.options.highest" in shown and "Largest number to begin at." in shown
    assert "env.options.highest" in (tree[0] / "docs" / "options.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_it_trains(tree):
    options = (
        "train.updates=1",
        "rollout.groups=2",
        "rollout.group_size=2",
        "logging.wandb=off",
        "processes=1",
    )
    last = run_in(tree[0], "run.py", "train", "countdown_cpu", *options, "--out", "out").splitlines()[-1]
    assert "on 3 countdowns · SCPO · 1 updates" in last
    assert json.loads((tree[0] / "out" / "config.json").read_text())["env"]["options"] == {"highest": 6}
