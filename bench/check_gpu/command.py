"""The command line: one process by default, the checks of several with `--nproc`."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from bench.check_gpu.several import check_several
from bench.check_gpu.single import SIZES, check
from commands.build.terminal import quiet_libraries
from configs.nvidia import complaint, driver


def main(words: Sequence[str] | None = None) -> None:
    """Parses the command line and checks.

    Exit code 0: nothing failed; 1: a check failed; 2: there is a GPU, but torch cannot use it.
    """
    parser = argparse.ArgumentParser(
        description="Checks generation, training and transfers on GPUs, in minutes, without a download."
    )
    parser.add_argument("--size", choices=SIZES, help="default: full on a GPU")
    parser.add_argument("--nproc", type=int, default=1, help="processes, one per GPU; from 2 on, ten checks")
    parser.add_argument("--backend", choices=("auto", "vllm", "torch"), default="auto")
    parser.add_argument("--engine", choices=("auto", "deepspeed", "torch"), default="auto")
    parser.add_argument("--out", type=Path, help="folder of the report (default: runs/check-gpu-DATE)")
    options = parser.parse_args(sys.argv[1:] if words is None else words)
    if options.size is None and (why := _no_use()):
        print(f"check-gpu: {why}")
        raise SystemExit(2)
    if not torch.cuda.is_available():
        print("no GPU here: this rehearses on the CPU, in the size tiny")
    elif options.nproc > torch.cuda.device_count():
        parser.error(f"--nproc {options.nproc}, but torch sees {torch.cuda.device_count()} GPUs")
    size = options.size or ("full" if torch.cuda.is_available() else "tiny")
    quiet_libraries()
    began = time.perf_counter()
    if options.nproc > 1:
        out = options.out or Path("runs") / f"check-gpu-{time.strftime('%Y%m%d-%H%M%S')}"
        passed = check_several(options.nproc, size, options.backend, out)
    else:
        with tempfile.TemporaryDirectory() as folder:
            check(SIZES[size], options.backend, options.engine, Path(folder))
        passed = True
    print(f"all of it: {time.perf_counter() - began:.0f} s")
    if not passed:
        raise SystemExit(1)


def _no_use() -> str | None:
    """Why a GPU that is here cannot be used; None if it can, or there is none."""
    if driver() is None or torch.cuda.is_available():
        return None
    return complaint() or (
        "nvidia-smi works, but torch.cuda.is_available() is false: `make doctor` says more; `--size tiny` "
        "rehearses on the CPU"
    )
