"""What every test shares: modest thread counts, nothing online, and where reference data lies."""

import os
from pathlib import Path

import pytest

# Before torch is imported: the tests of two workers on two cores would fight for them.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["WANDB_MODE"] = "disabled"
os.environ["HF_HUB_OFFLINE"] = "1"

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(autouse=True, scope="session")
def one_core():
    """Trainings inside a test's own process stay there: with more cores they would start others."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("commands.processes.physical_cores", lambda: 1)
        yield


@pytest.fixture(scope="session")
def shared():
    """The folder of reference data (`golden/`, `data/`); tests that need it are skipped without."""
    folder = Path(os.environ.get("SIBLING_SHARED", ROOT.parent / "shared"))
    if not folder.is_dir():
        pytest.skip("no reference data: set SIBLING_SHARED to the folder that holds golden/ and data/")
    return folder
