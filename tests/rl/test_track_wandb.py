"""W&B: real offline runs, their files read back; a stand-in module for accounts and broken networks."""

import sys
import types

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rl.checkpoint import STATE_FILE
from rl.tracking.tracker import Tracker, read_metrics
from rl.tracking.wandb_mirror import WandbMirror, WandbOptions, has_account
from tests.rl import wandb_file


class Wandb(types.ModuleType):
    """As much of the wandb module as the mirror touches."""

    def __init__(self, broken=()):
        super().__init__("wandb")
        self.errors = types.SimpleNamespace(Error=type("Error", (Exception,), {}))
        self.Settings, self.id, self.summary = dict, "made", {}
        self.opened, self.logged, self.finished, self.broken = [], [], False, set(broken)

    def init(self, **options):
        self.opened.append(options)
        if options["mode"] in self.broken:
            raise self.errors.Error("no route to host")
        self.id = options["id"] or "made"
        return self

    def define_metric(self, name, step_metric=None):
        pass

    def log(self, data, step, commit):
        if "log" in self.broken:
            raise self.errors.Error("gone")
        self.logged.append((step, data))

    def finish(self):
        self.finished = True


@pytest.fixture
def wandb(monkeypatch, tmp_path):
    def make(*broken):
        module = Wandb(broken)
        monkeypatch.setitem(sys.modules, "wandb", module)
        return module

    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.delenv("NETRC", raising=False)
    return make


def tracked(folder, mode, *, resume=None, said=None, **options):
    report = (lambda text: None) if said is None else said.append
    mirror = WandbMirror(folder, WandbOptions(mode=mode, **options), {"seed": 1}, report)
    return Tracker(folder, mirrors=[mirror], resume_update=resume, report=report)


def write_trajectories(folder, update):
    """Two groups of two trajectories of two steps; the second group has a success and a failure."""
    rows = [
        {
            "update": update,
            "task_id": f"task {group}",
            "family": "far",
            "group": group,
            "index": index,
            "success": (group, index) == (1, 0),
            "score": 0.5,
            "t": t,
            "observation": f"room {t}",
            "action": "go left",
            "reward": 1.0,
            "return": 2.0,
            "advantage": [0.25, -0.25][index],
            "scpo.credit": 0.0 if t else float("nan"),
            "scpo.match": t,
        }
        for group in (0, 1)
        for index in (0, 1)
        for t in (0, 1)
    ]
    path = folder / "trajectories" / f"{update:04d}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


@pytest.fixture(scope="module")
def life(tmp_path_factory):
    """A real offline run that is killed after update 6, resumed from 4, and evaluated late."""
    patch = pytest.MonkeyPatch()
    patch.delenv("WANDB_MODE", raising=False)
    folder, said = tmp_path_factory.mktemp("life") / "run", []
    options = {"group": "sweep-1", "tags": ["alfworld"], "table": 3, "checkpoints": "last", "said": said}
    write_trajectories(folder, 1)
    tracker = tracked(folder, "offline", **options)
    tracker.log(0, {"eval/success": 0.1})
    for update in range(1, 7):
        tracker.log(update, {"rollout/success": update / 10})
    tracker.log(5, {"eval/success": 0.5, "eval/success/far": 0.25})  # evaluated beside, arrived late
    tracker.close()
    checkpoint = folder / "checkpoints" / "0008"
    checkpoint.mkdir(parents=True)
    (checkpoint / STATE_FILE).write_bytes(b"state")
    resumed = tracked(folder, "online", resume=4, **options)  # begun offline, so it stays
    for update in range(5, 9):
        resumed.log(update, {"rollout/success": update / 10})
    resumed.close()
    wandb_file.wait_until_written(folder)
    patch.undo()
    return folder, said


def test_what_was_recorded_in_the_same_second_is_not_written_over(wandb, tmp_path, monkeypatch):
    module, slept = wandb(), []
    clock = iter(["20300101_000000", "20300101_000000", "20300101_000001"])
    monkeypatch.setattr("rl.tracking.wandb_mirror.strftime", lambda form: next(clock))
    monkeypatch.setattr("rl.tracking.wandb_mirror.sleep", slept.append)
    (tmp_path / "wandb" / "offline-run-20300101_000000-made").mkdir(parents=True)
    tracked(tmp_path, "offline").close()
    assert len(slept) == 2 and len(module.opened) == 1


def test_every_point_is_there_once_in_order_and_late_ones_survive(life):
    folder, _ = life
    rows = wandb_file.history(folder)
    rollouts = [(row["update"], row["rollout/success"]) for row in rows if "rollout/success" in row]
    assert rollouts == [(update, update / 10) for update in range(1, 9)]
    evals = [(row["update"], row["eval/success"]) for row in rows if "eval/success" in row]
    assert evals == [(0, 0.1), (5, 0.5)]
    assert [row["_step"] for row in rows] == list(range(10)), "W&B drops what runs backwards"


def test_one_run_grouped_tagged_configured_with_update_as_axis(life):
    folder, said = life
    runs = wandb_file.runs(folder)
    assert len(wandb_file.files(folder)) == 2
    assert len({run.run_id for run in runs}) == 1
    assert {run.run_group for run in runs} == {"sweep-1"} and list(runs[0].tags) == ["alfworld"]
    config = {item.key: item.value_json for item in runs[0].config.update}
    assert config["seed"] == "1" and '"rollout/success":"share: ' in config["metrics"]
    axes = wandb_file.axes(folder)
    assert {axes[f"{part}/*"] for part in ("rollout", "train", "eval", "credit", "time")} == {"update"}
    assert any("goes on offline" in text and "wandb sync" in text for text in said)


def test_histograms_table_and_checkpoint(life):
    folder, _ = life
    first = next(row for row in wandb_file.history(folder) if row["update"] == 1)
    assert first["trajectories._type"] == "table-file"
    name = "credit/advantage_histogram"
    assert first[f"{name}._type"] == first["credit/scpo.credit_histogram._type"] == "histogram"
    counts, edges = np.array(first[f"{name}.values"]), np.array(first[f"{name}.bins"])
    assert counts.sum() == 8 and edges[0] == -0.25 and edges[-1] == 0.25
    (table,) = folder.glob("wandb/*/files/media/table/*.json")
    text = table.read_text()
    assert text.index("task 1") < text.index("task 0"), "groups with both outcomes come first"
    assert text.count("go left") == 6, "three trajectories of two steps"
    records = [r for path in wandb_file.files(folder) for r in wandb_file.records(path)]
    artifacts = [
        r.request.log_artifact.artifact if r.WhichOneof("record_type") == "request" else r.artifact
        for r in records
        if r.WhichOneof("record_type") == "artifact"
        or (r.WhichOneof("record_type") == "request" and r.request.HasField("log_artifact"))
    ]
    (model,) = [artifact for artifact in artifacts if artifact.type == "model"]
    assert [entry.path for entry in model.manifest.contents] == [STATE_FILE]


@pytest.mark.parametrize(("key", "expected"), [(None, "offline"), ("not-a-key", "online")])
def test_auto_goes_online_only_with_an_account_and_says_so_once(tmp_path, wandb, monkeypatch, key, expected):
    module, said = wandb(), []
    if key:
        monkeypatch.setenv("WANDB_API_KEY", key)
    for resume in (None, 1):
        tracker = tracked(tmp_path / "my-run", "auto", resume=resume, said=said, project="p", entity="team")
        tracker.log((resume or 0) + 1, {"rollout/success": 0.5})
        tracker.close()
    first, second = module.opened
    assert first["mode"] == second["mode"] == expected and first["project"] == "p"
    assert first["name"] == "my-run" and first["entity"] == "team" and first["config"]["seed"] == 1
    assert (first["id"], second["id"]) == (None, "made")
    assert module.logged == [
        (0, {"update": 1, "rollout/success": 0.5}),
        (1, {"update": 2, "rollout/success": 0.5}),
    ]
    assert module.finished
    assert len(said) == (0 if key else 1)
    assert key or "no W&B account" in said[0]


def test_the_netrc_file_counts_as_an_account(tmp_path, wandb, monkeypatch):
    wandb()
    assert not has_account()
    file = tmp_path / "netrc"
    monkeypatch.setenv("NETRC", str(file))
    file.write_text("machine example.org login a password b\n")
    assert not has_account()
    file.write_text("machine api.wandb.ai login a password b\n")
    assert has_account()
    file.write_text("not a netrc")
    assert not has_account()


def test_an_unreachable_server_is_reported_and_survived(tmp_path, wandb):
    module, said = wandb("online"), []
    tracker = tracked(tmp_path, "online", said=said)
    assert [options["mode"] for options in module.opened] == ["online", "offline"]
    assert said == ["W&B could not be opened online (no route to host)"]
    tracker.log(1, {"rollout/success": 0.5})
    assert len(module.logged) == 1


def test_wandb_that_fails_altogether(tmp_path, wandb):
    wandb("online", "offline")
    said = []
    tracked(tmp_path, "online", said=said).log(1, {"rollout/success": 0.5})
    assert said[-1].startswith("metrics go to") and len(read_metrics(tmp_path / "metrics.jsonl")) == 1


def test_what_a_failure_midway_kept_from_wandb_is_sent_on_resume(tmp_path, wandb):
    wandb("log")
    said = []
    tracker = tracked(tmp_path, "offline", said=said)
    tracker.log(1, {})
    tracker.log(2, {})
    tracker.close()
    assert len(said) == 1 and "W&B failed (gone)" in said[0]
    module = wandb()
    tracked(tmp_path, "offline", resume=2).log(3, {})
    assert [data["update"] for _, data in module.logged] == [1, 2, 3]


def test_a_damaged_file_of_trajectories_is_said_and_survived(tmp_path, wandb):
    module, said = wandb(), []
    path = write_trajectories(tmp_path, 1)
    path.write_bytes(path.read_bytes()[:-100])
    tracked(tmp_path, "offline", said=said).log(1, {"rollout/success": 0.5})
    assert module.logged == [(0, {"update": 1, "rollout/success": 0.5})]
    assert "0001.parquet cannot be read" in said[0]


def test_without_wandb_installed(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    said = []
    tracked(tmp_path, "auto", said=said).log(1, {})
    assert "W&B is not installed" in said[0]
