"""`bench.check_gpu` in its small size: it runs, counts by hand-worked rules, and notices stale weights."""

import numpy as np
import pytest
import torch

from agent.policies.torch_policy import TorchPolicy
from bench.check_gpu import single
from bench.check_gpu.command import main
from bench.check_gpu.single import SIZES, operations, peak_flops
from rl.sync import SyncError


def test_it_runs_without_a_gpu_and_its_gap_is_small(capsys):
    main(["--size", "tiny", "--backend", "torch", "--engine", "torch"])
    out = capsys.readouterr().out
    assert "TorchPolicy, TorchEngine" in out and "update 2" in out
    gaps = [float(line.split("contract ")[1].split()[0]) for line in out.splitlines() if "transfer" in line]
    moved = [float(line.split("moved ")[1]) for line in out.splitlines() if "transfer" in line]
    assert max(gaps) < 1e-4 < 1e-2 < min(moved)


def test_old_weights_are_noticed(monkeypatch, tmp_path):
    """A sampler that says it has the new weights and goes on with the old."""

    def pretend(self, weights, version):
        self.version = version

    monkeypatch.setattr(TorchPolicy, "load_weights", pretend)
    with pytest.raises(SyncError, match="does not hold"):
        single.check(SIZES["tiny"], "torch", "torch", tmp_path)


def test_operations_by_hand():
    size = SIZES["tiny"]  # 2 layers of width 128
    assert operations([3, 5], size, 1000) == 6 * 1000 * 8 + 6 * 2 * 128 * (9 + 25)


@pytest.mark.parametrize(
    ("name", "teraflops"),
    [
        ("NVIDIA H200", 989),
        ("NVIDIA H100 80GB HBM3", 989),
        ("NVIDIA H100 PCIe", 756),
        ("NVIDIA A100-SXM4-80GB", 312),
        ("NVIDIA L40S", 362),
        ("NVIDIA L4", 121),
        ("NVIDIA H20", 148),
        ("a GPU of tomorrow", None),
    ],
)
def test_peaks_by_name(name, teraflops):
    assert peak_flops(name) == (None if teraflops is None else 1e12 * teraflops)


def test_the_full_size_is_what_it_says():
    size = SIZES["full"]
    with torch.device("meta"):
        parameters = sum(p.numel() for p in single.Qwen2ForCausalLM(size.config()).parameters())
    assert parameters == pytest.approx(0.5e9, rel=0.1) and size.dtype == torch.bfloat16
    assert size.responses % single.GROUP == 0 and np.isfinite(size.token_budget)
