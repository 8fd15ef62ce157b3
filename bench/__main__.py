"""`make bench`: every benchmark of this folder, one after the other, each in a process of its own.

python -m bench [NAME …]
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
NOT_A_BENCHMARK = {
    "__init__",
    "__main__",
    "readme",
    "ranks",
    "transfer_faults",
    "check_gpu",
    "cluster",
    "lengths",
}  # run by themselves


def main(names: Sequence[str]) -> int:
    """Runs the benchmarks named (default: all) and returns the number that failed."""
    known = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem not in NOT_A_BENCHMARK)
    unknown = set(names) - set(known)
    if unknown:
        print(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(known)}", file=sys.stderr)
        return 2
    failed = 0
    for name in names or known:
        print(f"== {name}", flush=True)
        failed += subprocess.run([sys.executable, "-m", f"bench.{name}"], cwd=FOLDER.parent).returncode != 0
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
