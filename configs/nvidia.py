"""Whether the NVIDIA driver here can run the CUDA set. Standard library only: setup asks before all else."""

from __future__ import annotations

import shutil
import subprocess

LEAST_DRIVER = 580
"""The CUDA set's torch is built for CUDA 13.0, whose kernels need a driver of this series or a newer one."""


def driver() -> str | None:
    """Version of the driver that nvidia-smi reports; None where it is not there or does not work."""
    if not shutil.which("nvidia-smi"):
        return None
    asked = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    lines = done.stdout.strip().splitlines()
    return lines[0].strip() if done.returncode == 0 and lines else None


def complaint() -> str | None:
    """One line on what to do about a driver that is too old; None if there is none, or it is new enough."""
    version = driver()
    if version is None:
        return None
    series = version.partition(".")[0]
    if series.isdigit() and int(series) >= LEAST_DRIVER:
        return None
    return (
        f"nvidia-smi reports driver {version}, but the CUDA set (torch for CUDA 13.0, vLLM) needs "
        f"{LEAST_DRIVER} or newer: update the driver, or use the CPU set (make setup DEVICE=cpu)"
    )
