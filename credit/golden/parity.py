"""Golden numbers of the public reference code against ours.

Each `<method>.json` holds cases made by running public code (or, for `scpo_semantics`, by enumerating
readings). Methods without a checker are reported as not built; they never count as passed. Checkers that
need another package (the policy loss needs torch) are passed in by the caller.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from credit.golden.checks import CHECKERS, Checker


@dataclass(frozen=True)
class ParityResult:
    """Counts by case.

    Attributes:
        passed: cases that agree.
        failed: cases that differ.
        failures: one line for each of them.
        not_built: methods with golden numbers that have no checker.
        by_method: method to (passed, failed).
    """

    passed: int
    failed: int
    failures: tuple[str, ...]
    not_built: tuple[str, ...]
    by_method: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [
            f"{name}: {passed} passed, {failed} failed" for name, (passed, failed) in self.by_method.items()
        ]
        lines += self.failures
        if self.not_built:
            lines.append("not built: " + ", ".join(self.not_built))
        return "\n".join([*lines, f"{self.passed} passed, {self.failed} failed"])


def run_parity(path: str | Path, extra_checkers: Mapping[str, Checker] | None = None) -> ParityResult:
    """Check every case of a folder of golden files, or of one file.

    Args:
        path: folder with `<method>.json` files, or one such file.
        extra_checkers: further methods, by name.

    Raises:
        FileNotFoundError: if there is no JSON file at `path`.
        ValueError: if one of them is no golden file.
    """
    path = Path(path)
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    if not files or not files[0].is_file():
        raise FileNotFoundError(f"{path}: no golden files; expected <method>.json or a folder of them")
    checkers = CHECKERS | dict(extra_checkers or {})
    by_method: dict[str, tuple[int, int]] = {}
    failures: list[str] = []
    not_built: list[str] = []
    for file in files:
        data = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(data, dict) or "method" not in data or "cases" not in data:
            raise ValueError(f"{file}: no golden file; expected an object with `method` and `cases`")
        method = data["method"]
        if method not in checkers:
            not_built.append(method)
            continue
        wrong = [
            f"{method} case {case['case']}: {problem}"
            for case in data["cases"]
            if (problem := checkers[method](case)) is not None
        ]
        by_method[method] = (len(data["cases"]) - len(wrong), len(wrong))
        failures += wrong
    passed, failed = (sum(counts[i] for counts in by_method.values()) for i in (0, 1))
    return ParityResult(passed, failed, tuple(failures), tuple(not_built), by_method)
