"""`run.py parity`: the engine and the credit methods against reference data."""

from __future__ import annotations

from pathlib import Path

from configs.text import ConfigError


def alfworld(games: Path, transcripts: Path) -> int:
    """Holds the engine against transcripts of the reference engine; returns the number that differ."""
    from envs.alfworld.parity import run_parity

    result = run_parity(games, transcripts)
    for failure in result.failures[:20]:
        print(failure)
    if len(result.failures) > 20:
        print(f"… and {len(result.failures) - 20} more")
    print(f"{result.steps} steps compared")
    print(f"{result.passed} passed, {result.failed} failed")
    return result.failed


def credit(path: Path) -> int:
    """Holds credit methods and the policy loss against golden numbers; returns the number that differ."""
    from credit.parity import run_parity
    from rl.golden import check_golden_case

    if not path.exists():
        raise ConfigError(
            f"no golden files at {path}: give a folder of <method>.json files, or one such file"
        )
    result = run_parity(path, {"policy_loss": check_golden_case})
    print(result)
    return result.failed
