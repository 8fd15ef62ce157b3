"""vLLM over several processes that hold one model in parts: the same log-probabilities, and no lost step."""

import json
import os
import subprocess
import sys

import pytest

from tests.conftest import ROOT
from tests.toy import tiny_model, toy_tokenizer

pytest.importorskip("vllm")
pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("processes", "team"), [(2, 2), (4, 2)])
def test_a_model_in_parts_gives_the_log_probabilities_of_a_whole_one(tmp_path, processes, team):
    tiny_model(len(toy_tokenizer()), hidden=128, std=0.12).save_pretrained(tmp_path / "model")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    done = subprocess.run(
        [*command, "-m", "tests.agent.vllm_team", str(tmp_path / "model"), str(team), str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=400,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = [json.loads((tmp_path / f"{rank}.json").read_text(encoding="utf-8")) for rank in range(processes)]
    for one in found:
        assert one["held"] < 0.75, "every rank holds a part only (the padded vocabulary counts)"
        assert one["played"] == 2 * 6 * 2 and one["tokens"] == found[0]["tokens"]
    assert max(one["worst"] for one in found) < 1e-4
