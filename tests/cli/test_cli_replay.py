"""`run.py replay`: exact on a short real run, fair to other methods, and one message for each mistake."""

import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import run as cli
from tests.eval.synthetic import RunWriter, toy_groups

TRAIN = [
    *("rollout.groups=3", "rollout.group_size=4", "rollout.max_parallel=12", "checkpoint.every=0"),
    *("env.max_steps=15", "env.difficulty=0.0", "env.train_tasks=6", "eval.tasks=1", "train.updates=2"),
    *("threads=1", "logging.wandb=off", "credit.scpo.theta=0.7"),
]


def main(patch, *arguments):
    patch.setattr(sys, "argv", ["run.py", *arguments])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    return caught.value.code or 0


@pytest.fixture
def call(capsys, monkeypatch, tmp_path):
    """Runs the command line in an empty folder: (exit code, output lines, errors)."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        code = main(monkeypatch, *arguments)
        captured = capsys.readouterr()
        return code, captured.out.strip().splitlines(), captured.err

    return call


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Two updates of the shipped policy with SCPO. Read only."""
    folder = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(patch, "train", "alfworld_cpu", "credit=scpo", *TRAIN) == 0
    (run,) = (folder / "runs").iterdir()
    return run


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    """Two updates of toy groups, credited with SCPO. Read only."""
    run = RunWriter(tmp_path_factory.mktemp("runs") / "toy", overrides=["credit.scpo.theta=0.7"])
    for update in (1, 2):
        run.update(update, toy_groups(update))
    return str(run.path)


def columns(path):
    return pq.read_table(path / "replay.parquet").to_pydict()


# --- runs --------------------------------------------------------------------------------------------------


def test_a_real_runs_own_method_is_replayed_exactly(call, trained, tmp_path):
    code, lines, error = call("replay", str(trained), "--credit", "scpo,gigpo", "--out", "out")
    assert code == 0, error
    assert "scpo: exactly the recorded advantages" in lines
    assert lines[-1] == "wrote out/replay.parquet and out/replay.html"
    recorded = [pq.read_table(path) for path in sorted((trained / "trajectories").glob("*.parquet"))]
    expected = [value for part in recorded for value in part["advantage"].to_pylist()]
    assert len(recorded) == 2
    assert len(set(expected)) > 10  # there was something to credit
    table = columns(tmp_path / "out")
    assert table["advantage.scpo"] == table["advantage.recorded"] == expected
    for name in recorded[0].schema.names:
        if name.startswith(("scpo.", "gigpo.")):
            values = [value for part in recorded for value in part[name].to_pylist()]
            assert table[f"scpo.{name}"] == values, name


def test_without_a_method_it_is_the_runs_own_and_lies_in_its_folder(call, toy, tmp_path):
    code, lines, error = call("replay", toy)
    assert code == 0, error
    assert "scpo: exactly the recorded advantages" in lines
    assert lines[-1] == f"wrote {toy}/replay/replay.parquet and {toy}/replay/replay.html"


def test_another_method_keeps_what_the_experiment_says_of_stages_both_have(call, toy, tmp_path):
    """alfworld_cpu sets returns.invalid_penalty to 0, gigpo's own file to 0.1."""
    code, _, error = call("replay", toy, "--credit", "gigpo,grpo", "--out", "out", "credit.gigpo.omega=0")
    assert code == 0, error
    html = (tmp_path / "out" / "replay.html").read_text(encoding="utf-8")
    assert html.count("returns(gamma=0.95, invalid_penalty=0.0)") == 2
    table = columns(tmp_path / "out")
    assert any(table["advantage.grpo"])
    assert table["advantage.gigpo"] == table["advantage.grpo"]  # omega = 0 is GRPO


def test_overrides_reach_the_methods_that_have_the_stage(call, toy, tmp_path):
    code, lines, error = call("replay", toy, "--credit", "scpo,gigpo", "--out", "out", "credit.scpo.alpha=0")
    assert code == 0, error
    table = columns(tmp_path / "out")
    assert table["advantage.scpo"] == table["advantage.gigpo"] != table["advantage.recorded"]
    (line,) = [line for line in lines if line.startswith("scpo: ")]
    differing = sum(a != b for a, b in zip(table["advantage.scpo"], table["advantage.recorded"], strict=True))
    assert line.startswith(f"scpo: {differing} steps differ from the recorded advantages")


@pytest.mark.parametrize(("update", "expected"), [("2", {2}), ("1-2", {1, 2}), ("2-7", {2})])
def test_some_updates_only(call, toy, tmp_path, update, expected):
    code, _, error = call("replay", toy, "--credit", "grpo", "--update", update, "--out", "out")
    assert code == 0, error
    assert set(columns(tmp_path / "out")["update"]) == expected


def test_the_page_shows_no_more_than_told(call, toy, tmp_path):
    code, _, error = call("replay", toy, "--credit", "grpo,gigpo", "--show", "3", "--out", "out")
    assert code == 0, error
    html = (tmp_path / "out" / "replay.html").read_text(encoding="utf-8")
    assert html.count('<details class="traj') == 3
    assert "3 of 32 trajectories" in html


# --- files made elsewhere ----------------------------------------------------------------------------------


@pytest.fixture
def made(tmp_path):
    """Two trajectories of one group with entropies."""
    rows = [
        {
            **{"group": "g", "trajectory": name, "t": t, "reward": 10.0 * (name == "win" and t == 1)},
            **{"success": name == "win", "anchor": f"room {t}", "action": "go"},
            **{"tokens.entropy": [0.1 * (t + 1), 0.3], "colour": "red"},
        }
        for name in ("win", "loss")
        for t in (0, 1)
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "made.parquet")
    return "made.parquet"


def test_a_file_made_elsewhere(call, made, tmp_path):
    code, lines, error = call("replay", "--from", made, "--credit", "gigpo,empg", "credit.gigpo.omega=2")
    assert code == 0, error
    assert any("not read: 'colour'" in line for line in lines)
    table = columns(tmp_path / "runs" / "replay-made")
    assert table["trajectory"] == ["win", "win", "loss", "loss"]
    # outcomes 10 and 0: ±1/sqrt 2; returns 9.5 and 0, 10 and 0 at the rooms: ±1/sqrt 2, twice
    half = 0.5**0.5
    assert table["advantage.gigpo"] == pytest.approx([3 * half, 3 * half, -3 * half, -3 * half], abs=1e-5)
    assert "advantage.recorded" not in table


def test_a_broken_file_is_one_message_with_its_row(call, made, tmp_path):
    rows = pq.read_table(made).to_pylist()
    rows[3]["t"] = 0
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / made)
    code, _, error = call("replay", "--from", made, "--credit", "gigpo")
    assert code == 2
    assert error.startswith("error: made.parquet: row 2, 3: t: trajectory 'loss': step 0 appears twice")
    assert not list((tmp_path / "runs").rglob("replay.parquet"))


# --- mistakes ----------------------------------------------------------------------------------------------

MISTAKES = {
    "nothing": ([], ["runs/ID", "--from"]),
    "both": (["RUN", "--from", "made.parquet"], ["--from"]),
    "no run": (["nowhere"], ["nowhere", "folder of a run"]),
    "no file": (["--from", "nowhere.parquet", "--credit", "grpo"], ["nowhere.parquet", "docs/replay.md"]),
    "a file without a method": (["--from", "made.parquet"], ["--credit"]),
    "unknown method": (["RUN", "--credit", "scpo,gigpoo"], ["did you mean `gigpo`?"]),
    "a method twice": (["RUN", "--credit", "grpo,grpo"], ["'grpo' twice"]),
    "entropies": (["RUN", "--credit", "grpo,empg"], ["'empg'", "stage empg", "'entropy'", "logp_sampled"]),
    "continuations": (["RUN", "--credit", "prover"], ["'prover'", "'continuations'", "leave the method out"]),
    "an update that is no number": (["RUN", "--update", "last"], ["--update", "5-12"]),
    "updates the wrong way round": (["RUN", "--update", "5-2"], ["--update", "5-12"]),
    "an update not recorded": (["RUN", "--update", "9"], ["update 9", "recorded: 1, 2"]),
    "an update not in the file": (
        ["--from", "made.parquet", "--credit", "grpo", "--update", "9"],
        ["made.parquet has none of the updates", "it has 1"],
    ),
    "a method as override": (["RUN", "credit=gigpo"], ["credit=gigpo", "--credit"]),
    "no override": (["RUN", "credit.scpo.theta"], ["credit.scpo.theta", "credit.STAGE.option=value"]),
    "an option of training": (["RUN", "train.lr=1"], ["train.lr=1", "credit, scorer, seed"]),
    "unknown stage": (["RUN", "credit.scop.theta=0.5"], ["credit.scop", "did you mean `credit.scpo`?"]),
    "unknown option": (["RUN", "credit.scpo.thetta=0.5"], ["did you mean 'theta'?"]),
    "out of range": (["RUN", "credit.scpo.theta=7"], ["credit.scpo.theta", "[0, 1]", "command line"]),
    "unknown scorer": (["RUN", "scorer.name=lexicall"], ["did you mean `lexical`?"]),
}


@pytest.mark.parametrize(("arguments", "parts"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_is_one_message_and_leaves_nothing(call, toy, made, tmp_path, arguments, parts):
    before = sorted(tmp_path.rglob("*"))
    code, _, error = call("replay", *(toy if word == "RUN" else word for word in arguments), "--out", "out")
    assert code == 2
    assert error.count("error: ") == 1
    assert "Traceback" not in error
    for part in parts:
        assert part in error
    assert sorted(tmp_path.rglob("*")) == before
