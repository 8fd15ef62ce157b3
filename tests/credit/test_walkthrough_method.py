"""CONTRIBUTING's "Adding a credit method", followed to the letter."""

import json

import pytest

from tests.walkthrough import lint, run_in, walked

TITLE = "Adding a credit method"
PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider")


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A copy of the project with the page's method in it, and what the page made."""
    return walked(tmp_path_factory.mktemp("method"), TITLE)


def test_the_page_makes_one_stage_one_method_file_and_one_test(tree):
    assert sorted(tree[1]) == [
        "configs/credit/late_credit.yaml",
        "credit/stages/late_credit.py",
        "tests/credit/test_credit_late_credit.py",
    ]
    for page, text in (("credit.md", "### `late_credit`"), ("options.md", "`credit.late_credit.keep`")):
        assert text in (tree[0] / "docs" / page).read_text(encoding="utf-8")


def test_lint_passes(tree):
    lint(tree[0], *tree[1])


def test_its_own_tests_the_laws_and_the_generated_pages_pass(tree):
    tests = ("tests/credit", "tests/cli/test_docs.py", "tests/cli/test_docs_credit.py")
    ours = "(late_credit or test_docs or what_can_be_left_out) and not walkthrough"
    assert "failed" not in run_in(tree[0], *PYTEST, *tests, "-k", ours)


def test_what_goes_over_all_methods_and_presets_takes_it(tree):
    tests = ("tests/configs/test_published.py", "tests/configs/test_layers.py", "tests/cli/test_protocol.py")
    run_in(tree[0], *PYTEST, "-x", *tests)


@pytest.mark.slow
def test_it_trains(tree):
    options = ("credit=late_credit", "train.updates=1", "rollout.groups=2", "rollout.group_size=2")
    run_in(
        tree[0],
        "run.py",
        "train",
        "alfworld_cpu",
        *options,
        "processes=1",
        "logging.wandb=off",
        "--out",
        "out",
    )
    credit = json.loads((tree[0] / "out" / "config.json").read_text())["credit"]
    assert list(credit["stages"]) == ["returns", "grpo", "late_credit"]
