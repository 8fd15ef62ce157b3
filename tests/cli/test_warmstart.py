"""The warm start as a command: it resumes, and the shipped policy is what its record says."""

import hashlib
import json
import sys
from dataclasses import asdict

import pytest

import run as cli
from commands.warmstart import LOG, PROVENANCE, SHIPPED, TOKENS
from rl.embedded import Architecture
from rl.warmstart import WarmstartOptions

SHIPPED_PROVENANCE = SHIPPED / PROVENANCE


@pytest.fixture
def warmstart(capsys, monkeypatch, tmp_path):
    """Runs the command in an empty folder: (exit code, output, errors)."""
    monkeypatch.chdir(tmp_path)

    def warmstart(*arguments):
        monkeypatch.setattr(sys, "argv", ["run.py", "warmstart", "--threads", "1", *arguments])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        captured = capsys.readouterr()
        return caught.value.code, captured.out, captured.err

    return warmstart


@pytest.mark.skipif(not SHIPPED_PROVENANCE.exists(), reason="no policy is shipped yet")
def test_the_shipped_policy_is_small_and_as_recorded():
    recorded = json.loads(SHIPPED_PROVENANCE.read_text(encoding="utf-8"))
    for name, digest in recorded["sha256"].items():
        content = (SHIPPED / name).read_bytes()
        assert hashlib.sha256(content).hexdigest() == digest
        assert len(content) <= 8e6
    assert recorded["evaluation"]["games"] >= 400
    assert 0.25 <= recorded["evaluation"]["success"] <= 0.50


@pytest.mark.skipif(not SHIPPED_PROVENANCE.exists(), reason="no policy is shipped yet")
def test_the_shipped_policy_was_made_by_the_command_of_now():
    recorded = json.loads(SHIPPED_PROVENANCE.read_text(encoding="utf-8"))
    now = WarmstartOptions(tokens=TOKENS, seed=recorded["options"]["seed"])
    assert recorded["options"] == json.loads(json.dumps(asdict(now))), (
        f"make warmstart again, --out {SHIPPED}"
    )
    assert recorded["architecture"] == asdict(Architecture())


@pytest.mark.slow
@pytest.mark.skipif(not SHIPPED_PROVENANCE.exists(), reason="no policy is shipped yet")
def test_a_short_run_starts_the_recorded_curve(warmstart, tmp_path):
    recorded = json.loads(SHIPPED_PROVENANCE.read_text(encoding="utf-8"))
    options = recorded["options"]
    arguments = ["--tokens", str(options["tokens"]), "--seed", str(options["seed"]), "--work", "w"]
    for shards in ("1", "2"):  # the second call goes on where the first stopped
        code, out, error = warmstart(*arguments, "--shards", shards)
        assert code in (0, None), error
        assert f"stopped after shard {shards}" in out
    lines = [json.loads(line) for line in (tmp_path / "w" / LOG).read_text().splitlines()]
    losses = [line["loss"] for line in lines]
    assert losses == pytest.approx(recorded["losses"][:2], abs=0.05)


@pytest.mark.slow
def test_other_options_are_refused_in_a_folder_begun_with_some(warmstart):
    assert warmstart("--tokens", "1000000", "--work", "w", "--shards", "1")[0] in (0, None)
    code, _, error = warmstart("--tokens", "2000000", "--work", "w", "--shards", "1")
    assert code == 2
    assert "use the same options, or another output folder" in error
