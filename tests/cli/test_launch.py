"""Processes started together end together, and the last line says who was first."""

import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LAUNCH = "import sys; from pathlib import Path; from commands.launch import launch; "
CHILD = """
    import os, signal, subprocess, sys, time
    rank, mode, folder = int(os.environ["RANK"]), *sys.argv[1:]
    if mode == "lost" and rank == 1:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    open(f"{folder}/{rank}", "w").write(str(os.getpid()))
    print(f"out {rank} of {os.environ['WORLD_SIZE']}")
    print(f"err {rank}", file=sys.stderr)
    while len([name for name in os.listdir(folder) if name.isdigit()]) < 2:
        time.sleep(0.01)
    if mode == "fine":
        sys.exit(0)
    if mode == "mistake":
        sys.exit(2) if rank == 1 else time.sleep(100)
    if mode == "lost":
        sys.exit(2) if rank == 0 else time.sleep(0.5)
        sys.exit(7)
    if mode == "killed" and rank == 1:
        helper = subprocess.Popen(["sleep", "100"])
        open(f"{folder}/helper", "w").write(str(helper.pid))
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(100)
"""


def start(folder: Path, mode: str) -> subprocess.Popen:
    script = folder / "child.py"
    script.write_text(textwrap.dedent(CHILD))
    code = LAUNCH + f"sys.exit(launch(2, [{mode!r}, {str(folder)!r}], Path({str(script)!r})))"
    return subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=ROOT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    # Not reaped yet by whoever inherited it: dead all the same.
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


def pids(folder: Path) -> dict[str, int]:
    return {path.name: int(path.read_text()) for path in folder.iterdir() if path.suffix == ""}


def test_the_terminal_is_rank_0s(tmp_path):
    out, err = start(tmp_path, "fine").communicate(timeout=60)
    assert out == "out 0 of 2\n"
    assert sorted(err.splitlines()) == ["[rank 1] err 1", "err 0"]


def test_a_killed_rank_is_named_and_nobody_is_left(tmp_path):
    launcher = start(tmp_path, "killed")
    _, err = launcher.communicate(timeout=60)
    found = pids(tmp_path)
    assert launcher.returncode == 128 + signal.SIGKILL
    assert err.splitlines()[-1].startswith(f"rank 1 (pid {found['1']}) was ended by signal 9 (SIGKILL)")
    assert set(found) == {"0", "1", "helper"}
    assert all(is_gone(pid) for pid in found.values())
    assert "Traceback" not in err


def test_a_users_mistake_keeps_its_code_without_noise(tmp_path):
    launcher = start(tmp_path, "mistake")
    _, err = launcher.communicate(timeout=60)
    assert launcher.returncode == 2
    assert sorted(err.splitlines()) == ["[rank 1] err 1", "err 0"]


def test_who_lost_its_peer_is_not_blamed(tmp_path):
    launcher = start(tmp_path, "lost")
    _, err = launcher.communicate(timeout=60)
    assert launcher.returncode == 7
    assert re.fullmatch(
        r"rank 1 \(pid \d+\) ended with exit code 7\. The others were ended\.", err.splitlines()[-1]
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_everything(tmp_path, number):
    launcher = start(tmp_path, "wait")
    deadline = time.monotonic() + 60
    while len(pids(tmp_path)) < 2 or not all((tmp_path / name).read_text() for name in "01"):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    launcher.send_signal(number)
    launcher.communicate(timeout=30)
    assert launcher.returncode == 128 + number
    assert all(is_gone(pid) for pid in pids(tmp_path).values())


NODE = """
    import json, os, sys
    sys.path.insert(0, sys.argv[1])
    from rl.learner.deepspeed_engine import DeepSpeedEngine, join
    join(60)
    from bench.ranks import Case, make_learner, make_update
    learner = make_learner(Case(1))
    where = learner.engine.channel().gather((os.environ["GROUP_RANK"], os.environ["LOCAL_RANK"]))
    loss = make_update(learner, 1)
    if os.environ["RANK"] == "0":
        print(json.dumps([where, loss]))
"""


@pytest.mark.slow
def test_two_nodes_under_torchrun(tmp_path):
    """Nothing but environment variables: any launcher that sets them will do."""
    import json

    from bench.ranks import Case, make_learner, make_update

    script = tmp_path / "node.py"
    script.write_text(textwrap.dedent(NODE))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1"]
    command += ["--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=test"]
    command += ["--local-addr=127.0.0.1", str(script), str(ROOT)]
    nodes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path) for _ in range(2)]
    outs = [node.communicate(timeout=240)[0] for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0]
    where, loss = json.loads(next(line for line in "".join(outs).splitlines() if line.startswith("[[")))
    assert where == [["0", "0"], ["1", "0"]]
    assert loss == pytest.approx(make_update(make_learner(Case(None)), 1), abs=1e-6)
