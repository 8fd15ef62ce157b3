"""Run folders that the report's tests share."""

import pytest

from tests.eval.synthetic import RunWriter, result, toy_groups
from tests.eval.viewing import make_runs


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory):
    """A run of 3 updates with SCPO, evaluated before and after. Read only."""
    run = RunWriter(tmp_path_factory.mktemp("runs") / "toy-scpo", overrides=["seed=3", "name=toy"])
    run.evaluate(0, result([1] * 152 + [0] * 248, families=4))
    for update in (1, 2, 3):
        run.update(update, toy_groups(update))
    run.evaluate(3, result([1] * 208 + [0] * 192, families=4, version=3))
    return run


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A folder of the viewer's runs."""
    folder = tmp_path_factory.mktemp("runs")
    make_runs(folder)
    return folder
