"""Writes requirements-lock-gpu.txt, the versions that the CUDA set adds to the default set: `make lock-gpu`.

Nothing of it is installed: uv resolves for Linux, under the versions that are locked for the default set.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Sequence

from configs.setup_env import GPU_LOCK, LOCK, ROOT, UV, files, pip

NOT_LOCKED = {"torch", "setuptools"}
"""torch is pinned in requirements.txt, since its local version differs by machine."""

HEADER = """\
# Versions that the CUDA set (requirements-gpu.txt) adds to requirements-lock.txt, resolved for Linux, x86-64,
# Python 3.11; no GPU has tried them. Written by `make lock-gpu`.
"""


def resolved() -> list[str]:
    """`name==version` of the default and the CUDA set together, sorted."""
    command = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--no-header", "--no-annotate"]
    command += [
        "--no-emit-index-url",
        "--python-platform",
        "x86_64-manylinux_2_28",
        "--python-version",
        "3.11",
    ]
    names = files("requirements.txt", "requirements-gpu.txt")[1::2]
    done = subprocess.run([*command, *LOCK, *names], stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT)
    return [line for line in done.stdout.splitlines() if "==" in line]


def added(lines: Iterable[str], locked: Sequence[str]) -> list[str]:
    """Those of `lines` that name a package which is not in `locked`, but for `NOT_LOCKED`."""
    known = {
        line.partition("==")[0].lower().replace("_", "-") for line in locked if "==" in line
    } | NOT_LOCKED
    return [line for line in lines if line.partition("==")[0].lower().replace("_", "-") not in known]


def main() -> None:
    """Writes the file."""
    pip(sys.executable, "install", UV)
    locked = (ROOT / "requirements-lock.txt").read_text(encoding="utf-8").splitlines()
    GPU_LOCK.write_text(HEADER + "\n".join(added(resolved(), locked)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
