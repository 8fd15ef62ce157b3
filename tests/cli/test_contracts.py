"""Import contracts that import-linter cannot say, and files that name what they must not."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("agent", "bench", "commands", "configs", "credit", "envs", "eval", "rl")
SOURCES = [
    ROOT / "run.py",
    *(path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))),
]


def imported(path):
    """Full names of everything a file imports, also inside functions."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def files_importing(name):
    return {
        str(path.relative_to(ROOT))
        for path in SOURCES
        if any(full == name or full.startswith(f"{name}.") for full in imported(path))
    }


@pytest.mark.parametrize("name", ["deepspeed", "torch.distributed"])
def test_distributed_training_is_in_one_file(name):
    assert files_importing(name) <= {"rl/engine_deepspeed.py"}


def test_vllm_is_in_at_most_one_file():
    assert len(files_importing("vllm")) <= 1


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_global_random_state(path):
    text = path.read_text(encoding="utf-8")
    python = r"\brandom\.(?:seed|random|choice|shuffle|randint|sample)\("
    numpy = r"\bnp\.random\.(?!default_rng|Generator|SeedSequence)"
    assert not re.findall(f"{python}|{numpy}", text)


def test_files_and_functions_stay_readable():
    long = {}
    for path in SOURCES:
        lines = len(path.read_text(encoding="utf-8").splitlines())
        if lines > 350:
            long[str(path.relative_to(ROOT))] = lines
    assert not long
