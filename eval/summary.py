"""The last line a run prints, and the small file from which README tables are filled."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from envs.worlds import noun_of
from eval.best import Best, best_of
from eval.compare import compare, disjoint
from eval.result import AttemptCounts, EvalResult
from eval.runfolder import RunFolder


def result_line(run: RunFolder, report_path: Path | str) -> str:
    """Returns the last line of a training run evaluated before and after, such as (in one line)

    held-out success 0.38 [0.33,0.43] → 0.52 [0.47,0.57] on 400 games · SCPO · 40 updates ·
    report runs/ID/report.html

    Where tasks can be solved in part, the score follows the success; where they were attempted several times,
    pass@k and pass^k; where the run keeps its best checkpoint, that one follows the updates.
    """
    before, after = run.before, run.after
    figures = f"held-out success {success_text(before)} → {success_text(after)}"
    if before.graded or after.graded:
        figures += f", score {score_text(before)} → {score_text(after)}"
    figures += passes_text(before, after)
    best = best_of(run)
    parts = [
        f"{figures} on {played_text(after, noun_of(run.get('env.name')))}",
        run.method.upper(),
        f"{run.updates} updates",
        *([best_text(best)] if best else []),
        f"report {report_path}",
    ]
    return " · ".join(parts)


def best_text(best: Best) -> str:
    """Returns the best checkpoint, what it was chosen by and what that is worth, in a few words."""
    metric, value = best.choice.metric.removeprefix("eval/"), best.choice.value
    much = "" if best.flattery is None else f", flattered by about {best.flattery:.2f}"
    return f"best {metric} {value:.2f} of {len(best.among)} after update {best.choice.update}{much}"


def played_text(result: EvalResult, noun: str) -> str:
    """Returns what was played, such as `400 games` or `134 games × 4 attempts`."""
    return f"{result.n} {noun}" + (f" × {result.samples} attempts" if result.samples > 1 else "")


def passes_text(*results: EvalResult) -> str:
    """Returns pass@k and pass^k of all attempts, each after a comma; nothing where there is one attempt.

    Several results, attempted equally often, are joined by arrows.
    """
    last = [result.overall.passes[-1] for result in results if result.overall.passes]
    if not last:
        return ""
    at = " → ".join(f"{rate.at:.2f} [{rate.at_lo:.2f},{rate.at_hi:.2f}]" for rate in last)
    hat = " → ".join(f"{rate.hat:.2f} [{rate.hat_lo:.2f},{rate.hat_hi:.2f}]" for rate in last)
    return f", pass@{last[-1].j} {at}, pass^{last[-1].j} {hat}"


def success_text(result: EvalResult) -> str:
    """Returns the success and its interval, such as 0.38 [0.33,0.43]."""
    return f"{result.success:.2f} [{result.ci[0]:.2f},{result.ci[1]:.2f}]"


def score_text(result: EvalResult) -> str:
    """Returns the mean score and its interval, in the same form."""
    overall = result.overall
    return f"{overall.score:.2f} [{overall.score_lo:.2f},{overall.score_hi:.2f}]"


def write_summary(run_dir: Path) -> Path:
    """Writes `run_dir/summary.json` from the run's own files and returns its path.

    Keys: name, env, method, seed, updates, n, samples (attempts at each task), before, after (each success,
    lo, hi, score, score_lo, score_hi, passes and per_family; null if that evaluation does not exist), graded
    (whether scores say more than success), difference, lo, hi, p (of success, paired; null without both),
    disjoint, best (the best checkpoint: metric, value, update, since, among, flattery, success, lo, hi,
    last_update, last_success; null if none is kept), seconds (wall-clock of the run), tokens (sampled while
    training).
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
        "env": run.get("env.name"),
        "method": run.method,
        "seed": run.get("seed"),
        "updates": run.updates,
        "n": last.n if last else None,
        "samples": last.samples if last else None,
        "before": _success(before) if before else None,
        "after": _success(after) if after else None,
        "graded": any(result.graded for result in (before, after) if result),
        "difference": paired.difference if paired else None,
        "lo": paired.lo if paired else None,
        "hi": paired.hi if paired else None,
        "p": paired.p if paired else None,
        "disjoint": disjoint(before, after) if before and after else None,
        "best": _best(best_of(run)),
        "seconds": run.seconds,
        "tokens": run.tokens,
    }


def _best(best: Best | None) -> dict[str, Any] | None:
    if best is None:
        return None
    return {
        **asdict(best.choice),
        "among": list(best.among),
        "flattery": best.flattery,
        "success": best.chosen.success,
        "lo": best.chosen.ci[0],
        "hi": best.chosen.ci[1],
        "last_update": best.last_update,
        "last_success": best.last.success,
    }


def _success(result: EvalResult) -> dict[str, Any]:
    def figures(counted: AttemptCounts) -> dict[str, Any]:
        score = {"score": counted.score, "score_lo": counted.score_lo, "score_hi": counted.score_hi}
        passes = {"passes": [asdict(rate) for rate in counted.passes]} if counted.passes else {}
        return {"n": counted.n, "success": counted.rate, "lo": counted.lo, "hi": counted.hi} | score | passes

    families = {family: figures(counted) for family, counted in result.per_family.items()}
    return {**figures(result.overall), "per_family": families}
