"""A driver that is too old for the CUDA set is said before anything is downloaded, run or trained."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from bench.check_gpu import command as check_gpu
from commands.build.terminal import check_accelerator
from configs import nvidia
from configs.lock_gpu import added
from configs.setup_env import ROOT
from configs.text import ConfigError

SMI = """#!/bin/sh
[ -z "$1" ] && { echo NVIDIA-SMI; exit %(code)s; }
case "$1" in *driver_version*) printf '%(drivers)s';; *) echo "NVIDIA A100-SXM4-80GB, 81920 MiB";; esac
exit %(code)s
"""


@pytest.fixture
def smi(tmp_path, monkeypatch):
    """Puts an nvidia-smi on the path."""

    def put(*drivers, code=0):
        path = tmp_path / "bin" / "nvidia-smi"
        path.parent.mkdir(exist_ok=True)
        path.write_text(SMI % {"code": code, "drivers": "".join(f"{one}\\n" for one in drivers)})
        path.chmod(0o755)
        monkeypatch.setenv("PATH", f"{path.parent}{os.pathsep}{os.environ['PATH']}")

    return put


@pytest.mark.parametrize(
    ("drivers", "code", "found", "old"),
    [
        (["535.104.05"], 0, "535.104.05", True),
        (["579.99"], 0, "579.99", True),
        (["580.65.06"], 0, "580.65.06", False),
        (["590.44"], 0, "590.44", False),
        (["570.10", "570.10", "570.10"], 0, "570.10", True),  # a line per GPU
        (["[Not Supported]"], 0, "[Not Supported]", True),
        (["535.104.05"], 9, None, False),  # nvidia-smi itself is broken: as without a GPU
        ([], 0, None, False),
    ],
)
def test_drivers(smi, drivers, code, found, old):
    smi(*drivers, code=code)
    assert nvidia.driver() == found
    said = nvidia.complaint()
    assert (said is not None) == old
    if said:
        assert (
            f"driver {found}" in said and "580 or newer" in said and "DEVICE=cpu" in said and "\n" not in said
        )


def test_no_nvidia_smi(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert nvidia.driver() is None and nvidia.complaint() is None


COMMANDS = {
    "setup": ["-m", "configs.setup_env", "default", "--venv", "nowhere"],
    "setup cuda": ["-m", "configs.setup_env", "default", "--device", "cuda", "--venv", "nowhere"],
    "setup gpu": ["-m", "configs.setup_env", "gpu", "--venv", "nowhere"],
    "doctor": ["-m", "configs.doctor"],
    "check-gpu": ["-m", "bench.check_gpu"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_end_with_one_line_and_code_2(smi, name):
    smi("535.104.05")
    done = subprocess.run(
        [sys.executable, *COMMANDS[name]], cwd=ROOT, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 2, done.stdout + done.stderr
    last = (done.stdout + done.stderr).strip().splitlines()[-1]
    assert "nvidia-smi reports driver 535.104.05" in last and "update the driver" in last
    assert "Traceback" not in done.stderr
    assert not (ROOT / "nowhere").exists()


def test_a_rehearsal_that_is_asked_for_runs(smi, monkeypatch, tmp_path):
    """And without being asked, a GPU that torch does not see is no reason to check the CPU instead."""
    smi("595.10")
    ran = []
    monkeypatch.setattr(check_gpu, "check", lambda *arguments: ran.append(arguments[0]))
    check_gpu.main(["--size", "tiny"])
    assert ran == [check_gpu.SIZES["tiny"]]
    with pytest.raises(SystemExit) as ended:
        check_gpu.main([])
    assert ended.value.code == 2 and len(ran) == 1
    assert "is_available() is false" in check_gpu._no_use()


@pytest.mark.parametrize(
    ("dtype", "backend", "build", "driver", "refused"),
    [
        ("bfloat16", "vllm", "13.0", "535.1", True),
        ("bfloat16", "torch", "13.0", "590.1", True),
        ("float32", "vllm", "13.0", "535.1", True),
        ("float32", "torch", "13.0", "535.1", False),  # a CPU preset runs on the CPU
        ("bfloat16", "vllm", None, "535.1", False),  # torch's CPU build was chosen
        ("bfloat16", "vllm", "13.0", None, False),  # no GPU here
    ],
)
def test_training_for_a_gpu_that_cannot_be_used_is_refused(
    smi, monkeypatch, dtype, backend, build, driver, refused
):
    smi(driver, code=0) if driver else monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(torch.version, "cuda", build)
    config = SimpleNamespace(model=SimpleNamespace(dtype=dtype), generator=SimpleNamespace(backend=backend))
    if not refused:
        return check_accelerator(config)
    with pytest.raises(ConfigError, match=r"update the driver|is_available\(\) is false"):
        check_accelerator(config)


def test_the_cuda_lock_adds_to_the_other_and_contradicts_nothing():
    def pins(name):
        lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
        return dict(line.split("==") for line in lines if "==" in line and not line.startswith("#"))

    more, locked = pins("requirements-lock-gpu.txt"), pins("requirements-lock.txt")
    assert not more.keys() & locked.keys() and "torch" not in more
    asked = {
        name.partition("[")[0].lower(): version for name, version in pins("requirements-gpu.txt").items()
    }
    assert all(more.get(name) == version for name, version in asked.items())
    assert any(name.startswith("nvidia-") for name in more) and len(more) > 100
    assert added(["torch==1", "Typing_Extensions==4", "vllm==2"], ["typing-extensions==4"]) == ["vllm==2"]
