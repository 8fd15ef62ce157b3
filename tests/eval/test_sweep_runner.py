"""The runner, with real processes: N at a time, killed, resumed, never repeated, stopped early, failing."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from configs.text import ConfigError
from eval.experiments.folder import Run
from eval.experiments.launch import Job, Local, visible_gpus
from eval.experiments.launch_cluster import Ray, Slurm
from eval.experiments.point_search import Race
from eval.experiments.runner import FAILURES, Listed, Runner
from eval.experiments.spec import EarlyTerminate

TRAINS = """
import json, os, pathlib, sys, time
folder, updates = pathlib.Path(sys.argv[1]), int(sys.argv[2])
value, pause = float(sys.argv[3]), float(sys.argv[4])
folder.mkdir(parents=True, exist_ok=True)
(folder / "config.json").write_text("{}")
metrics = folder / "metrics.jsonl"
done = len(metrics.read_text().splitlines()) if metrics.exists() else 0
with (folder / "starts").open("a") as file:
    file.write(f"{done} {os.environ.get('CUDA_VISIBLE_DEVICES', '')}\\n")
print("started", flush=True)
hold = folder.parent / f"hold-{folder.name}"  # while it is there, nothing happens after update 2
for update in range(done + 1, updates + 1):
    time.sleep(pause)
    while update > 2 and hold.exists():
        time.sleep(0.02)
    if value < 0:
        sys.exit("no such luck")
    with metrics.open("a") as file:
        file.write(json.dumps({"update": update, "score": value}) + "\\n")
(folder / "summary.json").write_text(json.dumps({"updates": updates}))
"""


class Watch:
    """Remembers."""

    def __init__(self):
        self.starts, self.ends, self.most, self.now = [], [], 0, 0

    def started(self, run, how):
        self.starts.append((run.name, how))
        self.now += 1
        self.most = max(self.most, self.now)

    def running(self, run):
        pass

    def ended(self, run, how):
        self.ends.append((run.name, how))
        self.now -= any(name == run.name for name, _ in self.starts)


def wanted(tmp_path, values, updates=3, seed=0):
    return [
        Run(f"run{i}", tmp_path / f"run{i}", (str(updates), str(value)), f"g{i}", seed, updates, {"i": i})
        for i, value in enumerate(values)
    ]


def hold(runs):
    """Has runs wait after their second update, however busy the machine; returns the files that say so."""
    files = [run.folder.parent / f"hold-{run.folder.name}" for run in runs]
    for file in files:
        file.touch()
    return files


def runner(tmp_path, parallel=1, pause=0.0, race=None, launcher=None):
    script = tmp_path / "trains.py"
    script.write_text(TRAINS)

    def job(run, resume):
        command = [sys.executable, "-S", "-E", str(script), str(run.folder), *run.arguments, str(pause)]
        return Job(run.name, command, tmp_path / "logs" / f"{run.name}.log")

    watch = Watch()
    return Runner(launcher or Local(), parallel, job, watch, "score", race, poll=0.02), watch


def starts(run):
    return (run.folder / "starts").read_text().splitlines()


def test_every_run_once_so_many_at_a_time_and_a_second_time_none(tmp_path):
    runs = wanted(tmp_path, [0.1, 0.2, 0.3, 0.4, 0.5])
    first, watch = runner(tmp_path, parallel=2, pause=0.02)
    assert first.run(Listed(runs)) == []
    assert watch.most == 2 and sorted(watch.ends) == [(f"run{i}", "finished") for i in range(5)]
    assert [run.value("score") for run in runs] == [0.1, 0.2, 0.3, 0.4, 0.5]
    assert "started" in (tmp_path / "logs" / "run0.log").read_text()
    second, watch = runner(tmp_path, parallel=2)
    second.run(Listed(runs))
    assert watch.starts == [] and {how for _, how in watch.ends} == {"kept"}
    assert all(len(starts(run)) == 1 for run in runs)


def test_each_slot_has_its_gpu(tmp_path, monkeypatch):
    runs = wanted(tmp_path, [0.1] * 4)
    runner(tmp_path, parallel=2, pause=0.05, launcher=Local(["4", "7"]))[0].run(Listed(runs))
    assert {line.split()[1] for run in runs for line in starts(run)} == {"4", "7"}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    assert visible_gpus() == ["2", "3"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert visible_gpus() == []


def test_interrupted_runs_go_on_where_they_were(tmp_path):
    runs = wanted(tmp_path, [0.1, 0.2], updates=60)
    holds = hold(runs)
    first, watch = runner(tmp_path, parallel=2, pause=0.05)
    waited = time.monotonic()

    def impatient(run):
        if all(one.update >= 1 for one in runs):
            raise KeyboardInterrupt
        assert time.monotonic() - waited < 120

    watch.running = impatient
    with pytest.raises(KeyboardInterrupt):
        first.run(Listed(runs))
    done = [run.update for run in runs]
    assert [run.state for run in runs] == ["unfinished", "unfinished"]
    for held in holds:
        held.unlink()
    time.sleep(0.2)
    assert [run.update for run in runs] == done, "nothing goes on by itself"
    second, watch = runner(tmp_path, parallel=2)
    second.run(Listed(runs))
    assert [how for _, how in watch.starts] == ["resumed", "resumed"]
    for run, before in zip(runs, done, strict=True):
        assert [int(line.split()[0]) for line in starts(run)] == [0, before]
        assert [update for update, _ in run.series("score")] == list(range(1, 61))


def test_runs_of_a_killed_sweep_are_waited_for_not_started_twice(tmp_path):
    """kill -9 leaves the run's process alone; it holds the lock, so the next sweep waits for it."""
    (run,) = wanted(tmp_path, [0.5], updates=40)
    (tmp_path / "trains.py").write_text(TRAINS)
    command = [sys.executable, "-S", "-E", str(tmp_path / "trains.py"), str(run.folder), "40", "0.5", "0.05"]
    code = (
        "import time\nfrom pathlib import Path\nfrom eval.experiments.launch import Job, Local\n"
        f"Local().start(Job('run0', {command!r}, Path({str(tmp_path / 'logs' / 'run0.log')!r})), 0)\n"
        "time.sleep(600)\n"
    )
    sweep = subprocess.Popen([sys.executable, "-c", code], cwd=Path(__file__).resolve().parents[2])
    while run.update < 1:
        time.sleep(0.02)
    sweep.send_signal(signal.SIGKILL)
    sweep.wait()
    again, watch = runner(tmp_path)
    assert again.run(Listed([run])) == []
    assert watch.starts == [("run0", "elsewhere")] and watch.ends == [("run0", "finished")]
    assert len(starts(run)) == 1


def test_a_half_written_record_and_summary_are_not_results(tmp_path):
    (run,) = wanted(tmp_path, [0.5])
    run.folder.mkdir()
    (run.folder / "config.json").write_text("{}")
    (run.folder / "metrics.jsonl").write_text('{"update": 1, "score": 0.25}\n{"update": 2, "sco')
    (run.folder / "summary.json").write_text('{"updates": 3')
    assert (run.state, run.update, run.value("score")) == ("unfinished", 1, 0.25)


def test_a_failure_is_shown_and_the_others_go_on(tmp_path):
    runs = wanted(tmp_path, [0.1, -1, 0.3])
    one, watch = runner(tmp_path)
    assert one.run(Listed(runs)) == [runs[1]]
    assert watch.ends == [("run0", "finished"), ("run1", "failed"), ("run2", "finished")]
    assert "no such luck" in (tmp_path / "logs" / "run1.log").read_text()
    again, watch = runner(tmp_path)
    again.run(Listed(runs))
    assert watch.starts == [("run1", "resumed")], "only what failed is tried again"


def test_failures_in_a_row_end_a_sweep(tmp_path):
    runs = wanted(tmp_path, [-1] * 6)
    one, watch = runner(tmp_path)
    assert len(one.run(Listed(runs))) == FAILURES == len(watch.starts)


def test_losers_are_stopped_early_and_stay_stopped(tmp_path):
    runs = wanted(tmp_path, [0.9, 0.1, 0.8], updates=30)
    hold(runs[1:2])

    def race():
        return Race(EarlyTerminate(type="hyperband", min_iter=2, eta=2), "maximize")

    one, watch = runner(tmp_path, pause=0.1, race=race)
    one.run(Listed(runs))
    assert dict(watch.ends)["run0"] == "finished" and dict(watch.ends)["run1"] == "stopped"
    note = json.loads((runs[1].folder / "stopped.json").read_text())
    assert note["value"] == 0.1 and 2 <= note["update"] < 30 == runs[0].update
    again, watch = runner(tmp_path, race=race)
    again.run(Listed(runs[:2]))
    assert watch.starts == []


def test_slurm_jobs_through_submitit(tmp_path):
    pytest.importorskip("submitit")
    slurm = Slurm(tmp_path / "slurm", {"timeout_min": "5"}, cluster="local")
    runs = wanted(tmp_path, [0.5, -1])
    one, watch = runner(tmp_path, parallel=2, launcher=slurm)
    assert one.run(Listed(runs)) == [runs[1]]
    assert dict(watch.ends) == {"run0": "finished", "run1": "failed"}
    assert "no such luck" in (tmp_path / "logs" / "run1.log").read_text()


def test_clusters_that_are_not_there_say_how_to_get_them(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    pytest.importorskip("submitit")
    with pytest.raises(ConfigError, match="sbatch"):
        Slurm(tmp_path / "slurm", {})
    monkeypatch.setitem(sys.modules, "ray.job_submission", None)
    with pytest.raises(ConfigError, match="pip install"):
        Ray(None, 0)
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(ConfigError, match="pip install submitit"):
        Slurm(tmp_path / "slurm", {})
