"""`run.py parity`: compares the engine and the credit methods with reference data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from configs.text import ConfigError


def alfworld(games: Path, transcripts: Path) -> int:
    """Compares the engine with transcripts of the reference engine; returns the number that differ."""
    from envs.alfworld.parity import run_parity

    result = run_parity(games, transcripts)
    return _print(result.failures, result.steps, result.passed)


def webshop(golden: Path, products: Path | None) -> int:
    """Compares pages, goals and rewards with the published environment's; returns the number that differ.

    Args:
        golden: Folder of the reference data; see `envs.webshop.parity.run_parity`.
        products: Folder of the published set of 1,000 products, whose goals are counted as well.
    """
    from envs.webshop.parity import PUBLISHED_COUNTS, count_goals, run_parity

    result = run_parity(golden)
    failures, passed = list(result.failures), result.passed
    if products is not None:
        for what, expected, got in zip(
            ("products", "synthetic goals", "human goals"),
            PUBLISHED_COUNTS,
            count_goals(products),
            strict=True,
        ):
            print(f"{products}: {got} {what}")
            if got == expected:
                passed += 1
            else:
                failures.append(f"{products}: {what}\n  expected {expected}\n  got      {got}")
    return _print(failures, result.steps, passed)


def _print(failures: Sequence[str], steps: int, passed: int) -> int:
    for failure in failures[:20]:
        print(failure)
    if len(failures) > 20:
        print(f"… and {len(failures) - 20} more")
    print(f"{steps} steps compared")
    print(f"{passed} passed, {len(failures)} failed")
    return len(failures)


def credit(path: Path) -> int:
    """Compares credit methods and the policy loss with golden numbers; returns the number that differ."""
    from credit.golden.parity import run_parity
    from rl.learner.golden_loss import check_golden_case

    if not path.exists():
        raise ConfigError(
            f"no golden files at {path}: give a folder of <method>.json files, or one such file"
        )
    result = run_parity(path, {"policy_loss": check_golden_case})
    print(result)
    return result.failed
