"""metrics.jsonl and W&B, the latter played by a stand-in but for one real offline run."""

import json
import sys
import types

import pytest

from rl.track import Tracker, has_account, read_metrics


class Wandb(types.ModuleType):
    """As much of the wandb module as the tracker touches."""

    def __init__(self, broken=()):
        super().__init__("wandb")
        self.errors = types.SimpleNamespace(Error=type("Error", (Exception,), {}))
        self.Settings = dict
        self.opened, self.logged, self.finished, self.broken = [], [], False, set(broken)

    def init(self, **options):
        self.opened.append(options)
        if options["mode"] in self.broken:
            raise self.errors.Error("no route to host")
        return self

    def log(self, metrics, step):
        if "log" in self.broken:
            raise self.errors.Error("gone")
        self.logged.append((step, metrics))

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


def test_records_are_appended_and_finite(tmp_path):
    tracker = Tracker(tmp_path / "run")
    tracker.log(0, {"eval/success": 0.5})
    tracker.log(1, {"rollout/success": 0.25, "train/loss": float("nan")})
    tracker.close()
    assert read_metrics(tmp_path / "run" / "metrics.jsonl") == [
        {"update": 0, "eval/success": 0.5},
        {"update": 1, "rollout/success": 0.25},
    ]


def test_unknown_metrics_are_refused(tmp_path):
    with pytest.raises(KeyError, match="'rollout/mood' has no entry"):
        Tracker(tmp_path).log(1, {"rollout/mood": 1.0})


def test_an_existing_record_is_not_overwritten(tmp_path):
    Tracker(tmp_path).log(1, {})
    with pytest.raises(FileExistsError, match="resume that run"):
        Tracker(tmp_path)


@pytest.mark.parametrize(("resume", "kept"), [(2, [0, 1, 2]), (1, [0, 1]), (0, [])])
def test_resume_drops_what_will_be_made_again(tmp_path, resume, kept):
    tracker = Tracker(tmp_path)
    for update in range(4):
        tracker.log(update, {"rollout/success": 0.5})
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"update": 4, "rollo')
    again = Tracker(tmp_path, resume_update=resume)
    assert [record["update"] for record in read_metrics(tmp_path / "metrics.jsonl")] == kept
    again.log(9, {})
    assert [json.loads(line)["update"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()] == [
        *kept,
        9,
    ]


def test_resume_without_a_record(tmp_path):
    Tracker(tmp_path, resume_update=3).log(4, {})
    assert len(read_metrics(tmp_path / "metrics.jsonl")) == 1


@pytest.mark.parametrize(("key", "expected"), [(None, "offline"), ("not-a-key", "online")])
def test_auto_goes_online_only_with_an_account(tmp_path, wandb, monkeypatch, key, expected):
    module = wandb()
    if key:
        monkeypatch.setenv("WANDB_API_KEY", key)
    tracker = Tracker(tmp_path / "my-run", mode="auto", project="p", config={"seed": 1})
    tracker.log(1, {"rollout/success": 0.5})
    tracker.close()
    (options,) = module.opened
    assert options["mode"] == expected and options["project"] == "p" and options["id"] == "my-run"
    assert options["config"] == {"seed": 1}
    assert module.logged == [(1, {"rollout/success": 0.5})] and module.finished


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
    tracker = Tracker(tmp_path, mode="online", report=said.append)
    assert [options["mode"] for options in module.opened] == ["online", "offline"]
    assert said == ["W&B could not be opened online (no route to host)"]
    tracker.log(1, {"rollout/success": 0.5})
    assert len(module.logged) == 1


def test_wandb_that_fails_altogether(tmp_path, wandb):
    wandb("online", "offline")
    said = []
    Tracker(tmp_path, mode="online", report=said.append).log(1, {"rollout/success": 0.5})
    assert said[-1].startswith("metrics go to") and len(read_metrics(tmp_path / "metrics.jsonl")) == 1


def test_wandb_that_fails_midway(tmp_path, wandb):
    wandb("log")
    said = []
    tracker = Tracker(tmp_path, mode="offline", report=said.append)
    tracker.log(1, {})
    tracker.log(2, {})
    tracker.close()
    assert len(said) == 1 and "W&B failed (gone)" in said[0]
    assert len(read_metrics(tmp_path / "metrics.jsonl")) == 2


def test_without_wandb_installed(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    said = []
    Tracker(tmp_path, mode="auto", report=said.append).log(1, {})
    assert "W&B is not installed" in said[0]


def test_a_real_offline_run(tmp_path, monkeypatch):
    monkeypatch.delenv("WANDB_MODE")
    tracker = Tracker(tmp_path / "run", mode="offline", config={"seed": 0})
    tracker.log(1, {"rollout/success": 0.5})
    tracker.close()
    assert list((tmp_path / "run" / "wandb").glob("offline-run-*/*.wandb"))
