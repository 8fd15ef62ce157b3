"""The one line a run ends with, and the small file README tables are filled from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from eval.compare import compare, disjoint
from eval.result import EvalResult, Tally
from eval.runfolder import RunFolder


def result_line(
    before: EvalResult, after: EvalResult, method: str, updates: int, report_path: Path | str
) -> str:
    """Returns the last line of a training run, such as (in one line)

    held-out success 0.38 [0.33,0.43] → 0.52 [0.47,0.57] on 400 games · SCPO · 40 updates ·
    report runs/ID/report.html
    """
    return (
        f"held-out success {_rate(before)} → {_rate(after)} on {after.n} games · {method.upper()} · "
        f"{updates} updates · report {report_path}"
    )


def write_summary(run_dir: Path) -> Path:
    """Writes `run_dir/summary.json` from the run's own files and returns its path.

    Keys: name, method, seed, updates, n, before, after (each success, lo, hi and per_family; null if
    that evaluation does not exist), difference, lo, hi, p (paired; null without both), disjoint,
    seconds (wall-clock of the run), tokens (sampled while training).
    """
    run = RunFolder.read(run_dir)
    path = run.path / "summary.json"
    path.write_text(json.dumps(summarise(run), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def summarise(run: RunFolder) -> dict[str, Any]:
    """Returns the content of `summary.json`; see `write_summary`."""
    before, after = run.before, run.after
    paired = compare(before, after) if before and after else None
    last = after or before
    return {
        "name": run.get("name"),
        "method": run.method,
        "seed": run.get("seed"),
        "updates": run.updates,
        "n": last.n if last else None,
        "before": _success(before) if before else None,
        "after": _success(after) if after else None,
        "difference": paired.difference if paired else None,
        "lo": paired.lo if paired else None,
        "hi": paired.hi if paired else None,
        "p": paired.p if paired else None,
        "disjoint": disjoint(before, after) if before and after else None,
        "seconds": run.seconds,
        "tokens": run.tokens,
    }


def _rate(result: EvalResult) -> str:
    return f"{result.success:.2f} [{result.ci[0]:.2f},{result.ci[1]:.2f}]"


def _success(result: EvalResult) -> dict[str, Any]:
    def figures(tally: Tally) -> dict[str, float]:
        return {"n": tally.n, "success": tally.rate, "lo": tally.lo, "hi": tally.hi}

    families = {family: figures(tally) for family, tally in result.per_family.items()}
    return {**figures(result.overall), "per_family": families}
