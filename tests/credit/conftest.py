"""What the tests of credit share: tables from short descriptions, and where reference data lies."""

import os
from pathlib import Path

import pytest

from credit.table import StepTable


def table_from(trajectories):
    """A table from [{"group": int, "success": bool, "steps": [[observation, action, reward, valid], …]}]."""
    rows = [
        (trajectory.get("group", 0), k, t, trajectory, step)
        for k, trajectory in enumerate(trajectories)
        for t, step in enumerate(trajectory["steps"])
    ]
    return StepTable(
        group=[row[0] for row in rows],
        trajectory=[row[1] for row in rows],
        t=[row[2] for row in rows],
        outcome=[sum(step[2] for step in row[3]["steps"]) for row in rows],
        success=[row[3]["success"] for row in rows],
        anchor=[row[4][0] for row in rows],
        action=[row[4][1] for row in rows],
        reward=[row[4][2] for row in rows],
        valid=[row[4][3] for row in rows],
    )


@pytest.fixture
def build():
    return table_from


@pytest.fixture
def golden():
    root = Path(os.environ.get("SIBLING_SHARED", Path(__file__).parents[3] / "shared"))
    folder = root / "golden" / "credit"
    if not folder.is_dir():
        pytest.skip("no reference data: set SIBLING_SHARED to the folder that holds golden/credit")
    return folder
