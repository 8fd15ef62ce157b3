"""CONTRIBUTING's "Adding a metric", followed to the letter."""

import pytest

from tests.walkthrough import lint, run_in, walked


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A copy of the project with the page's metric in it, and what the page made."""
    return walked(tmp_path_factory.mktemp("metric"), "Adding a metric")


def test_lint_and_the_tests_that_go_over_all_metrics_pass(tree):
    lint(tree[0], *tree[1], "rl/tracking/metrics.py")
    tests = (
        "tests/rl/test_thoughts.py",
        "tests/rl/test_track.py",
        "tests/rl/test_parts.py",
        "tests/cli/test_docs.py",
    )
    run_in(tree[0], "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests)


def test_the_page_of_metrics_names_it(tree):
    page = (tree[0] / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert "| `rollout/thoughts` | share | steps whose response has a thought |" in page
