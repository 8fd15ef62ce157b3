"""The warm start as a command: it resumes, and the shipped policy is what its record says."""

import hashlib
import json
import sys
from dataclasses import asdict

import pytest

import run as cli
from commands.warmstart import ASSETS, LOG, PROVENANCE
from configs.worlds import WORLDS
from envs.worlds import world_class
from rl.warmstart.embedded import Architecture
from rl.warmstart.training import WarmstartOptions

START = {"alfworld": (0.25, 0.50), "webshop": (0.10, 0.50)}
"""Success that leaves RL something to gain, and something to gain it with."""


def recorded(name):
    """The record of a shipped policy."""
    return json.loads((ASSETS / f"{name}-tiny" / PROVENANCE).read_text(encoding="utf-8"))


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


@pytest.mark.parametrize("name", WORLDS)
def test_the_shipped_policy_is_small_and_as_recorded(name):
    record = recorded(name)
    for file, digest in record["sha256"].items():
        content = (ASSETS / f"{name}-tiny" / file).read_bytes()
        assert hashlib.sha256(content).hexdigest() == digest
        assert len(content) <= 8e6
    assert record["evaluation"]["tasks"] >= 400
    low, high = START[name]
    assert low <= record["evaluation"]["success"] <= high


@pytest.mark.parametrize("name", WORLDS)
def test_the_shipped_policy_was_made_by_the_command_of_now(name):
    record, now = recorded(name), world_class(name).lessons()
    made = {
        "options": WarmstartOptions(tokens=now.tokens, seed=record["options"]["seed"]),
        "lessons": now.lessons,
        "architecture": Architecture(**now.policy),
    }
    for part, value in made.items():
        assert record[part] == json.loads(json.dumps(asdict(value))), f"make warmstart again for {name}"


@pytest.mark.slow
@pytest.mark.parametrize("name", WORLDS)
def test_a_short_run_starts_the_recorded_curve(name, warmstart, tmp_path):
    record = recorded(name)
    arguments = ["--experiment", record["evaluation"]["experiment"], "--work", "w"]
    arguments += ["--tokens", str(record["options"]["tokens"]), "--seed", str(record["options"]["seed"])]
    for shards in ("1", "2"):  # the second call goes on where the first stopped
        code, out, error = warmstart(*arguments, "--shards", shards)
        assert code in (0, None), error
        assert f"stopped after shard {shards}" in out
    lines = [json.loads(line) for line in (tmp_path / "w" / LOG).read_text().splitlines()]
    losses = [line["loss"] for line in lines]
    assert losses == pytest.approx(record["losses"][:2], abs=0.05)


@pytest.mark.slow
def test_other_options_are_refused_in_a_folder_begun_with_some(warmstart):
    assert warmstart("--tokens", "1000000", "--work", "w", "--shards", "1")[0] in (0, None)
    code, _, error = warmstart("--tokens", "2000000", "--work", "w", "--shards", "1")
    assert code == 2
    assert "use the same options, or another output folder" in error
