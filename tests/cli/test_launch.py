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

from commands.launched import complain, complaints

ROOT = Path(__file__).resolve().parents[2]
LAUNCH = "import sys; from pathlib import Path; from commands.launch import launch; "
CHILD = """
    import os, signal, subprocess, sys, time
    rank, mode, folder = int(os.environ["RANK"]), *sys.argv[1:]
    if mode == "lost" and rank == 1:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print(f"out {rank} of {os.environ['WORLD_SIZE']}")
    print(f"err {rank}", file=sys.stderr)
    open(f"{folder}/{rank}", "w").write(str(os.getpid()))
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


FOLLOWER = """
    import os, sys, time
    sys.path.insert(0, sys.argv[2])
    from commands.launched import end_with_launcher
    end_with_launcher()
    open(f"{sys.argv[1]}/{os.environ['RANK']}", "w").write(str(os.getpid()))
    time.sleep(200)
"""


def test_ranks_end_with_a_launcher_that_is_killed(tmp_path):
    script = tmp_path / "follower.py"
    script.write_text(textwrap.dedent(FOLLOWER))
    code = f"{LAUNCH}sys.exit(launch(3, [{str(tmp_path)!r}, {str(ROOT)!r}], Path({str(script)!r})))"
    launcher = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while len(found := [path for path in tmp_path.glob("[0-9]") if path.read_text()]) < 3:
        assert time.monotonic() < deadline and launcher.poll() is None
        time.sleep(0.05)
    ranks = [int(path.read_text()) for path in found]
    assert not any(map(is_gone, ranks))
    launcher.kill()
    launcher.wait()
    deadline = time.monotonic() + 5
    while not all(map(is_gone, ranks)):
        assert time.monotonic() < deadline, "ranks outlive their launcher"
        time.sleep(0.05)


def test_without_linuxs_help_the_parent_is_watched(tmp_path):
    """A child whose launcher is another process than its parent ends itself."""
    code = "from commands.launched import _watch; _watch(1)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=60)
    assert done.returncode == 1


def test_a_mistake_of_all_ranks_is_printed_once():
    code = f"{LAUNCH}sys.exit(launch(3, ['train', 'alfworld_cpu', 'train.nonsense=1']))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert done.stderr.count("nonsense") == 1 and "[rank" not in done.stderr, done.stderr
    assert done.stderr.startswith("error: ")


def test_a_mistake_of_one_rank_is_printed_with_its_rank(tmp_path):
    script = tmp_path / "one.py"
    script.write_text(
        f"import os, sys, time; sys.path.insert(0, {str(ROOT)!r})\n"
        "from commands.launched import complain\n"
        "if os.environ['RANK'] == '2':\n    complain('error: no such disk here'); sys.exit(2)\n"
        "time.sleep(60)\n"
    )
    code = f"{LAUNCH}sys.exit(launch(3, [], Path({str(script)!r})))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert done.stderr.splitlines() == ["[rank 2] error: no such disk here"]


def test_without_a_launcher_a_mistake_is_ones_own(monkeypatch, tmp_path):
    monkeypatch.delenv("SIBLING_MISTAKES", raising=False)
    assert not complain("error: x")
    monkeypatch.setenv("SIBLING_MISTAKES", str(tmp_path))
    monkeypatch.delenv("RANK", raising=False)
    assert not complain("error: x")
    monkeypatch.setenv("RANK", "4")
    assert complain("error: x") and complaints(tmp_path) == {"error: x": [4]}
