"""`make check-gpu ARGS="--nproc 2"` as a rehearsal on the CPU, and what it says of checks that fail."""

import json
import queue
import subprocess
import sys
from types import SimpleNamespace

import pytest

from bench.check_gpu import checks, report, several
from bench.check_gpu.checks import CHECKS, Bench, Failed, Skipped, run_checks
from bench.check_gpu.report import Result, environment, markdown
from bench.check_gpu.single import SIZES
from tests.conftest import ROOT


def test_two_processes_pass_and_leave_all_there_is_to_reproduce_it(tmp_path):
    words = ["--size", "tiny", "--nproc", "2", "--backend", "torch", "--out", str(tmp_path / "out")]
    done = subprocess.run(
        [sys.executable, "-m", "bench.check_gpu", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    document = json.loads((tmp_path / "out" / "results.json").read_text())
    outcomes = {one["name"]: one["outcome"] for one in document["results"]}
    assert list(outcomes) == [*CHECKS, "killed rank"]
    assert {name for name, outcome in outcomes.items() if outcome != "passed"} == {"sleep"}  # no GPU
    found = {one["name"]: one["figure"] for one in document["results"]}
    assert "does not h" in found["dropped transfer"] and "SIGKILL" in found["killed rank"]
    table = (tmp_path / "out" / "report.md").read_text()
    assert "nothing failed" in table and table in done.stdout and document["command"] in table
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        *("report.md", "results.json", "environment.txt", "rank-0.log", "rank-1.log")
    }
    assert "torch==" in (tmp_path / "out" / "environment.txt").read_text()


def bad(bench):
    raise Failed("what it was looking for\nand more")


def nothing(bench):
    raise Skipped("no such thing here")


def test_a_check_that_fails_does_not_end_the_others(monkeypatch, tmp_path, capfd):
    alone = SimpleNamespace(gather=lambda value: [value])
    monkeypatch.setattr(checks, "join", lambda timeout_s: None)
    monkeypatch.setattr(checks, "Channel", lambda timeout_s: alone)
    monkeypatch.setattr(checks, "CHECKS", {"bad": bad, "none": nothing, "good": lambda bench: "7 GB/s"})
    said = []
    run_checks(Bench(SIZES["tiny"], "torch", tmp_path, {}), lambda *result: said.append(result[:3]))
    assert said == [
        ("bad", "failed", "Failed: what it was looking for"),
        ("none", "skipped", "no such thing here"),
        ("good", "passed", "7 GB/s"),
    ]
    assert "Traceback" in capfd.readouterr().err


def answered(*results):
    said = queue.Queue()
    for one in results:
        said.put(one)
    return said


def test_the_worst_rank_decides(monkeypatch):
    there = [SimpleNamespace(exitcode=None)] * 2
    good, broken = Result("x", "passed", "fine", 1.0), Result("x", "failed", "broken", 0.5)
    assert several._collect("x", answered(good, broken), there, []) == Result("x", "failed", "broken", 1.0)
    assert several._collect("x", answered(good, good), there, []) == good
    later, waiting = Result("y", "skipped", "", 0.0), []
    assert several._collect("x", answered(good, later, good), there, waiting) == good
    assert several._collect("y", answered(later), there, waiting) == later
    gone = [SimpleNamespace(exitcode=None), SimpleNamespace(exitcode=-9)]
    lost = several._collect("x", answered(good), gone, [])
    assert (lost.outcome, lost.figure) == ("lost", "rank 1 ended with -9")
    monkeypatch.setattr(several, "PATIENCE_S", 0.0)
    assert several._collect("x", answered(good), there, []).figure == "no answer"


def test_the_command_fails_with_a_check(monkeypatch, tmp_path):
    from bench.check_gpu import command

    monkeypatch.setattr(command, "check_several", lambda *arguments: False)
    with pytest.raises(SystemExit) as ended:
        command.main(["--size", "tiny", "--nproc", "2", "--out", str(tmp_path)])
    assert ended.value.code == 1


def test_the_table_by_hand():
    results = [Result("a", "passed", "1 | 2", 0.25), Result("b", "failed", "no", 3.0)]
    lines = markdown("cmd", 2, {"GPUs": "none", "commit": "abc"}, results).splitlines()
    assert lines[0] == "**check-gpu, 2 processes: failed: b** (`cmd`)"
    assert lines[4:6] == [r"| a | passed | 1 \| 2 | 0.2 |", "| b | failed | no | 3.0 |"]
    assert lines[-1] == "GPUs none · commit abc"


def test_what_is_written_down_holds_no_secrets(monkeypatch):
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    monkeypatch.setenv("VLLM_API_KEY", "hush")
    monkeypatch.setenv("SIBLING_POLICY_TOKEN", "hush")
    monkeypatch.setattr(report, "_said", lambda command: "")
    facts, text = environment()
    assert "NCCL_DEBUG=INFO" in text and "hush" not in text and facts["torch"]
