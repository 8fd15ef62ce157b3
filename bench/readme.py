"""Fills the figures of README.md from the runs that produced them.

    python -m bench.readme runs/ID [runs/ID …] [runs/ablations/NAME …]

Between `<!-- line:NAME -->` and `<!-- /line -->` goes the last line of the first run named whose experiment
is NAME; between `<!-- figures:NAME -->` and `<!-- /figures -->` the table of all of them; between
`<!-- ablation:NAME -->` and `<!-- /ablation -->` the table of the ablation in runs/ablations/NAME. Blocks
without a run stay as they are.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from eval.runfolder import RunFolder
from eval.summary import result_line, summarise

README = Path(__file__).resolve().parent.parent / "README.md"
LINE = re.compile(r"(<!-- line:(\w+) -->\n```\n\$ [^\n]*\n).*?(```\n<!-- /line -->)", re.DOTALL)
TABLE = re.compile(r"(<!-- figures:(\w+) -->\n).*?(<!-- /figures -->)", re.DOTALL)
ABLATION = re.compile(r"(<!-- ablation:(\w+) -->\n).*?(<!-- /ablation -->)", re.DOTALL)
COLUMNS = ["method", "seed", "updates", "tasks", "before", "after", "difference"]
SCORES = ["score before", "score after"]


def main(folders: Sequence[str]) -> None:
    """Rewrites README.md from the folders of runs and ablations named."""
    if not folders:
        sys.exit(__doc__)
    paths = [Path(folder) for folder in folders]
    ablations = {path.name: (path / "table.md").read_text("utf-8") for path in paths if _is_ablation(path)}
    runs = [RunFolder.read(path) for path in paths if not _is_ablation(path)]
    unfinished = [str(run.path) for run in runs if run.before is None or run.after is None]
    if unfinished:
        sys.exit(f"not finished (no evaluation before and after): {', '.join(unfinished)}")
    text = fill(README.read_text(encoding="utf-8"), runs, ablations)
    README.write_text(text, encoding="utf-8")
    print(f"wrote the figures of {len(runs)} runs and {len(ablations)} ablations into {README.name}")


def _is_ablation(path: Path) -> bool:
    return (path / "table.md").is_file()


def fill(text: str, runs: Sequence[RunFolder], ablations: Mapping[str, str] | None = None) -> str:
    """Returns `text` with the blocks of `runs`, by experiment, and of `ablations`, name → table, filled."""
    ablations = ablations or {}
    by_name: dict[str, list[RunFolder]] = {}
    for run in runs:
        by_name.setdefault(str(run.get("name")), []).append(run)
    names = {match[2] for pattern in (LINE, TABLE, ABLATION) for match in pattern.finditer(text)}
    if unknown := (by_name.keys() | ablations.keys()) - names:
        sys.exit(
            f"README.md has no block for {', '.join(sorted(unknown))}; it has {', '.join(sorted(names))}"
        )

    def replace(match: re.Match[str], body: str) -> str:
        return match[1] + body + match[3] if match[2] in by_name else match[0]

    text = LINE.sub(lambda m: replace(m, last_line(by_name[m[2]][0]) if m[2] in by_name else ""), text)
    text = TABLE.sub(lambda m: replace(m, table(by_name.get(m[2], []))), text)
    return ABLATION.sub(lambda m: m[1] + ablations[m[2]] + m[3] if m[2] in ablations else m[0], text)


def last_line(run: RunFolder) -> str:
    """Returns the line the run ended with; its folder is written as `runs/ID`."""
    return result_line(run, f"runs/{run.path.name}/report.html") + "\n"


def table(runs: Sequence[RunFolder]) -> str:
    """Returns the Markdown table of some runs of one experiment, sorted by method and seed."""
    summaries = [summarise(run) for run in sorted(runs, key=lambda run: (run.method, run.get("seed")))]
    graded = any(summary["graded"] for summary in summaries)
    columns = [*COLUMNS, *(SCORES if graded else ()), "minutes"]
    rows = [_cells(summary, graded) for summary in summaries]
    return "".join(f"| {' | '.join(map(str, row))} |\n" for row in (columns, ["---"] * len(columns), *rows))


def _cells(s: Mapping[str, Any], graded: bool) -> list[Any]:
    before, after = s["before"], s["after"]

    def rate(of: Mapping[str, float], name: str, low: str, high: str) -> str:
        return f"{of[name]:.2f} [{of[low]:.2f}, {of[high]:.2f}]"

    cells = [s["method"].upper(), s["seed"], s["updates"], s["n"]]
    cells += [rate(result, "success", "lo", "hi") for result in (before, after)]
    cells.append(f"{s['difference']:+.2f} [{s['lo']:+.2f}, {s['hi']:+.2f}]")
    if graded:
        cells += [rate(result, "score", "score_lo", "score_hi") for result in (before, after)]
    return [*cells, f"{s['seconds'] / 60:.0f}"]


if __name__ == "__main__":
    main(sys.argv[1:])
