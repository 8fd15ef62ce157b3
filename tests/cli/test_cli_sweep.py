"""`sweep`, `ablate`, `list`, `compare` on the command line: what is shipped is valid, mistakes are named."""

import json
import sys
from pathlib import Path

import pytest

import run as cli
from commands.experiments.sweep import FOLDER as SWEEPS
from commands.experiments.sweep import metric_range, pinned
from commands.experiments.wandb_sweep import registered
from configs.load import load, write_config
from eval.experiments.spec import read_sweep
from eval.result import EvalResult, TaskResult, save_eval
from eval.statistics import SHARE
from eval.summary import write_summary

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = sorted((ROOT / "configs" / "sweeps").glob("*.yaml"))
HEAD = "command: [train, alfworld_cpu]\nmethod: grid\nmetric: {name: eval/success, goal: maximize}\n"


@pytest.fixture
def call(capsys, monkeypatch, tmp_path):
    """Runs the command line in an empty folder: (exit code, output, errors)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["run.py", *arguments])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        captured = capsys.readouterr()
        return caught.value.code or 0, captured.out, captured.err

    return call


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_sweeps_are_valid_and_start_nothing_when_dry(call, tmp_path, path):
    code, out, error = call("sweep", path.stem, "--dry-run")
    assert code == 0, error
    lines = [line for line in out.splitlines() if " · new · run.py train " in line]
    sweep, _ = read_sweep(path)
    expected = 1
    for parameter in sweep.parameters.values():
        expected *= len(parameter.values or [0])
    assert len(lines) == expected == len({line.split()[0] for line in lines})
    assert list(tmp_path.iterdir()) == []


def test_shipped_ablations_pair_every_variant_with_every_seed(call):
    code, out, error = call("ablate", "scpo_smallest", "--dry-run", "--seeds", "4,5,6")
    assert code == 0, error
    runs = [line.split(" · ")[0] for line in out.splitlines() if " · new · " in line]
    assert len(runs) == 18
    assert all(sum(f"-s{seed}-" in name for name in runs) == 6 for seed in (4, 5, 6))
    code, out, error = call("ablate", "methods", "--dry-run")
    assert code == 0 and out.count("run.py train alfworld_cpu") == 21, error


MISTAKES = {
    "unknown option": ("parameters: {credit.scpo.thta: {values: [0.5]}}", ["credit.scpo.thta=0.5", "theta"]),
    "unknown key": ("parameters: {train.lrr: {values: [1]}}", ["at train.lrr=1", "did you mean `train.lr`"]),
    "out of range": (
        "parameters: {credit.scpo.theta: {values: [0.9, 7]}}",
        ["credit.scpo.theta=7", "[0, 1]"],
    ),
    "unknown method": ("parameters: {credit: {values: [scpo, gigpoo]}}", ["did you mean `gigpo`"]),
    "empty grid": ("parameters: {credit.scpo.theta: {values: []}}", ["an empty grid has no runs"]),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_bad_point_is_named_before_anything_starts(call, tmp_path, name):
    text, parts = MISTAKES[name]
    (tmp_path / "sweep.yaml").write_text(HEAD + text + "\n")
    code, _, error = call("sweep", "sweep.yaml")
    assert code == 2
    assert all(part in error for part in parts), error
    assert not (tmp_path / "runs").exists()


def test_other_mistakes(call, tmp_path, monkeypatch):
    (tmp_path / "sweep.yaml").write_text(
        HEAD.replace("eval/success", "eval/sucess") + "parameters: {seed: {value: 1}}\n"
    )
    code, _, error = call("sweep", "sweep.yaml")
    assert code == 2 and "did you mean `eval/success`" in error
    code, _, error = call("sweep", "group_sizes")
    assert code == 2 and "did you mean `group_size`" in error
    early = "parameters: {seed: {value: 1}}\nearly_terminate: {type: hyperband, min_iter: 2}\n"
    (tmp_path / "early.yaml").write_text(HEAD + early)
    code, _, error = call("sweep", "early.yaml")
    assert code == 2 and "eval.every=0" in error
    (tmp_path / "random.yaml").write_text(
        HEAD.replace("grid", "random") + "parameters: {train.lr: {min: 0.1, max: 1.0}}\n"
    )
    code, _, error = call("sweep", "random.yaml")
    assert code == 2 and "run_cap" in error
    code, _, error = call("sweep", "group_size", "--launcher", "slrm")
    assert code == 2 and "did you mean `slurm`" in error
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    code, _, error = call("sweep", "group_size", "--wandb")
    assert code == 2 and "wandb login" in error


def test_overrides_pin_dimensions_and_reach_wandb():
    sweep, raw = read_sweep(SWEEPS / "group_size.yaml")
    sweep, fixed = pinned(sweep, ["rollout.group_size=4", "rollout.groups=32"])
    sent = registered(sweep, raw, fixed, "group_size")
    assert fixed == ["threads=1", "rollout.groups=32"]
    assert sent["parameters"]["rollout.group_size"] == {"value": 4}
    assert sent["parameters"]["credit"] == raw["parameters"]["credit"]
    assert sent["command"][-2:] == ["rollout.groups=32", "${args_no_hyphens}"]


# --- list and compare --------------------------------------------------------------------------------------


def made_run(folder, won, *overrides):
    """A finished run of two updates, by its files."""
    folder.mkdir(parents=True)
    config = load("alfworld_cpu", ["train.updates=2", *overrides]).config
    write_config(config, folder / "config.json")
    for update, successes in ((0, [0] * len(won)), (2, won)):
        tasks = [
            TaskResult(f"t{i}", "look", bool(w), float(w), False, 3, 3, 3, 3, 9)
            for i, w in enumerate(successes)
        ]
        save_eval(folder, update, EvalResult(tuple(tasks), 0, 1.0, update))
    record = {"update": 2, "rollout/success": sum(won) / len(won), "time/update": 5.0}
    (folder / "metrics.jsonl").write_text(json.dumps(record) + "\n")
    write_summary(folder)
    return folder


def test_compare_shows_options_and_the_paired_test(call, tmp_path):
    a = made_run(tmp_path / "runs" / "a", [1, 1, 0, 0, 0, 0], "credit=gigpo", "logging.wandb=off")
    b = made_run(tmp_path / "runs" / "b", [0, 1, 1, 1, 1, 1], "credit=scpo", "seed=1")
    code, out, error = call("compare", str(a), str(b))
    assert code == 0, error
    assert "credit.name" in out and "seed" in out and "logging.wandb" not in out
    assert "B − A +0.500" in out and "on the same 6 tasks" in out and "p 0.375" in out  # 2·(1 + 5)/2⁵
    assert "only A solves 1, only B 4, both 1, none 0" in out


def test_list_shows_every_run_however_it_ended(call, tmp_path):
    done = made_run(tmp_path / "runs" / "done", [1, 0])
    killed = made_run(tmp_path / "runs" / "sweeps" / "s" / "killed", [1, 0])
    (killed / "summary.json").unlink()
    with (killed / "metrics.jsonl").open("a") as file:
        file.write('{"update": 3, "rol')
    (killed / "trajectories").mkdir()
    (killed / "trajectories" / "0002.parquet").write_bytes(b"PAR1 and no more")
    other = made_run(tmp_path / "runs" / "other-version", [1, 1])
    config = json.loads((other / "config.json").read_text())
    del config["train"]["lr"]
    (other / "config.json").write_text(json.dumps(config | {"gone": {"option": 1}}))
    code, out, error = call("list")
    assert code == 0, error
    rows = {line.split("│")[1].strip(): line for line in out.splitlines() if line.startswith("│")}
    assert set(rows) == {"done", "sweeps/s/killed", "other-version"}
    assert "finished" in rows["done"] and "unfinished" in rows["sweeps/s/killed"]
    assert "half a record (18 bytes)" in out and "trajectories of update 2 are lost" in out
    code, out, error = call("compare", str(done), str(other))
    assert code == 0 and "gone.option" in out and "train.lr" in out, error
    code, _, error = call("list", "nowhere")
    assert code == 2 and "no folder nowhere" in error
    code, _, error = call("compare", str(done), str(tmp_path))
    assert code == 2 and "not a run folder" in error


def test_list_folds_long_names_not_figures(call, tmp_path, monkeypatch):
    made_run(tmp_path / "runs" / "ablations" / ("long-" * 12 + "name"), [1, 0])
    monkeypatch.setenv("COLUMNS", "110")
    code, out, error = call("list")
    assert code == 0, error
    (row,) = (line for line in out.splitlines() if "0.500" in line)
    assert "finished" in row and "…" not in out
    names = (line.split("│")[1].strip() for line in out.splitlines() if line.startswith("│"))
    assert "".join(names) == "ablations/" + "long-" * 12 + "name"


@pytest.mark.parametrize(
    "name", ["eval/success", "eval/score", "eval/success/family", "credit/scpo/credited_fraction"]
)
def test_shares_have_a_range_whatever_their_table_calls_the_unit(name):
    assert metric_range(name) == SHARE


@pytest.mark.parametrize("name", ["rollout/return", "credit/advantage_std", "credit/scpo/effect_correlation"])
def test_other_metrics_have_none(name):
    assert metric_range(name) is None
