"""Ablations: statistics by hand, the table's figures from made runs, files that pdflatex and csv read."""

import csv
import io
import json
import re
from pathlib import Path

import numpy as np
import pytest

from configs.text import ConfigError
from eval.compare import STUDENT, compare_all
from eval.experiments.ablation import Ablated
from eval.experiments.ablation_file import AblationFile, read_ablation
from eval.experiments.folder import Run
from eval.experiments.sweep import Found
from eval.result import EvalError, EvalResult, TaskResult, save_eval
from eval.statistics import cohen_h, difference_over_both, difference_over_tasks, paired, share_interval

FULL = {0: [1, 1, 1, 0], 1: [1, 1, 0, 0], 2: [1, 1, 1, 1]}
LESS = {0: [1, 0, 1, 0], 1: [0, 1, 0, 0], 2: [1, 1, 0, 0]}


def evaluated(won, family=lambda i: "far" if i % 2 else "near"):
    tasks = [
        TaskResult(f"task {i}", family(i), bool(w), float(w), False, 3, 3, 3, 3, 9) for i, w in enumerate(won)
    ]
    return EvalResult(tuple(tasks), seed=0, temperature=1.0, policy_version=0)


# --- several seeds -----------------------------------------------------------------------------------------


def test_seeds_of_a_task_are_averaged():
    """Of 3 seeds the tasks are won 3, 3, 2, 1 times with the one, 2, 2, 1, 0 with the other."""
    pairs = [(evaluated(FULL[s]), evaluated(LESS[s])) for s in FULL]
    found = compare_all(pairs)
    assert (found.n, found.both, found.lost, found.gained, found.neither) == (4, 0, 4, 0, 0)
    assert (found.before, found.after) == (pytest.approx(9 / 12), pytest.approx(5 / 12))
    assert found.test == STUDENT
    expected = difference_over_tasks([1, 1, 2 / 3, 1 / 3], [2 / 3, 2 / 3, 1 / 3, 0])
    assert (found.lo, found.hi, found.p) == pytest.approx((expected.lo, expected.hi, expected.p))
    matrix = np.array([np.subtract(LESS[s], FULL[s]) for s in FULL], float)
    assert found.over_both == difference_over_both(matrix)
    with pytest.raises(EvalError, match="nothing to compare"):
        compare_all([])
    with pytest.raises(EvalError, match="task 3"):
        compare_all([pairs[0], (evaluated([1, 0, 1]), evaluated([1, 1, 1]))])


# --- the table ---------------------------------------------------------------------------------------------


@pytest.fixture
def ablated(tmp_path):
    """Two variants on three seeds, a third of which one seed is done, a fourth that could not be run."""
    spec = AblationFile(
        title="What 50 % of it does",
        experiment="x",
        seeds=[0, 1, 2],
        reference="full",
        variants={"full": {"reported": "93.7 ± 4.1"}, "less_of it": {}, "begun": {}, "absent": {}},
    )
    runs = []
    for variant, by_seed in {"full": FULL, "less_of it": LESS, "begun": {1: [1, 1, 1, 1]}}.items():
        for seed in spec.seeds:
            folder = tmp_path / f"{variant}-{seed}"
            runs.append(Run(folder.name, folder, (), variant, seed, 4, {"variant": variant}))
            if seed in by_seed:
                save_eval(folder, 0, evaluated([0, 0, 0, 0]))
                save_eval(folder, 2, evaluated([1, 1, 1, 1]))
                save_eval(folder, 4, evaluated(by_seed[seed]))
                (folder / "summary.json").write_text(json.dumps({"updates": 4}))
    return Ablated(spec, runs, {"absent": "no such scorer"})


def test_the_rows_figures(ablated):
    full, less, begun, absent = ablated.rows
    assert (full["mean"], full["best"], full["difference"]) == (pytest.approx(0.75), 1.0, None)
    assert less["mean"] == pytest.approx(5 / 12)
    own = paired({s: np.mean(v) for s, v in FULL.items()}, {s: np.mean(v) for s, v in LESS.items()})
    assert (less["difference"], less["p_seeds"], less["d_z"]) == (own.difference.mean, own.p, own.d_z)
    assert full["hi"] == 1.0, "Student's interval of 0.75, 0.5, 1 goes to 1.37"
    over_tasks = compare_all([(evaluated(FULL[s]), evaluated(LESS[s])) for s in FULL])
    assert (less["difference_tasks_lo"], less["difference_tasks_hi"]) == (over_tasks.lo, over_tasks.hi)
    assert (less["p_tasks"], less["p_both"]) == (over_tasks.p, over_tasks.over_both.p)
    assert (less["tasks_lo"], less["tasks_hi"]) == share_interval([2 / 3, 2 / 3, 1 / 3, 0], 3)
    assert less["p_tasks_holm"] == min(1, 2 * less["p_tasks"]), "two variants are compared with the reference"
    assert less["h"] == pytest.approx(cohen_h(0.75, 5 / 12))
    assert (begun["seeds"], begun["mean"], begun["lo"], begun["p_seeds"]) == (1, 1.0, None, None)
    assert begun["difference"] == 0.5, "compared with the reference's run of the same seed"
    assert begun["p_tasks"] == 0.5 and begun["p_both"] is None, "one seed: McNemar's test, 2 · ½²"
    assert (absent["seeds"], absent["mean"]) == (0, None)


def test_the_table_in_its_three_forms(ablated, tmp_path):
    table = ablated.table()
    paths = {path.suffix: path.read_text() for path in table.write(tmp_path / "table.md")}
    markdown = paths[".md"]
    assert "| full | 3 | 0.750 |" in markdown and "| begun | 1 of 3 | 1.000 |" in markdown
    assert "absent: not run, no such scorer" in markdown and "7 of 9 runs finished" in markdown
    widths = {line.count("|") for line in markdown.splitlines() if line.startswith("|")}
    assert len(widths) == 1
    read = list(csv.DictReader(io.StringIO(paths[".csv"])))
    assert [row["variant"] for row in read] == ["full", "less_of it", "begun", "absent"]
    assert float(read[1]["difference"]) == pytest.approx(-1 / 3) and read[0]["difference"] == ""
    ends = [float(row[key]) for row in read for key in ("lo", "hi", "tasks_lo", "tasks_hi") if row[key]]
    assert ends and all(0 <= end <= 1 for end in ends)
    assert "what other training runs would give on other tasks" in markdown
    latex = paths[".tex"]
    assert r"less\_of it" in latex and r"50 \%" in latex and r"93.7 $\pm$ 4.1" in latex
    rows = [line for line in latex.splitlines() if line.endswith(r"\\") and "&" in line]
    assert len({line.count(" & ") for line in rows}) == 1
    assert latex.isascii() or not re.search(r"[−±Δ–]", latex)


def test_families_and_picture(ablated, tmp_path):
    families = ablated.families().markdown()
    assert "| full | 0.667 | 0.833 |" in families  # far: tasks 1 and 3, near: 0 and 2
    svg, png = ablated.write_picture(tmp_path / "picture.svg")
    again = ablated.write_picture(tmp_path / "again.svg")[0]
    text = svg.read_text()
    assert text == again.read_text()
    assert all(name in text for name in ("full", "less_of it", "begun")) and "absent" not in text
    assert png.read_bytes()[:4] == b"\x89PNG"


# --- files -------------------------------------------------------------------------------------------------

BASE = "title: t\nexperiment: alfworld_cpu\nseeds: [0, 1]\nreference: a\nvariants: {a: {}, b: {}, c: {}}\n"
REFUSED = {
    "one variant": (BASE.replace(", b: {}, c: {}", ""), "at least two"),
    "no such reference": (BASE.replace("reference: a", "reference: aa"), "no variant is called 'aa'"),
    "no seeds": (BASE.replace("[0, 1]", "[]"), "`seeds`"),
    "a seed twice": (BASE.replace("[0, 1]", "[1, 1]"), "lists one twice"),
    "misspelt": (BASE.replace("variants", "varaints"), "did you mean `variants`"),
    "without what is not there": (BASE + "without: [d]\n", "no variant is called 'd'"),
    "no base": ("base: nowhere\n", "nowhere.yaml"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(tmp_path, name):
    text, message = REFUSED[name]
    (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(ConfigError, match=re.escape(message)):
        read_ablation(tmp_path / "a.yaml")


def test_a_base_is_laid_below(tmp_path):
    (tmp_path / "base.yaml").write_text(BASE + "overrides: {threads: 1, train.updates: 40}\n")
    (tmp_path / "small.yaml").write_text(
        "base: base\nseeds: [5]\nwithout: [b]\noverrides: {train.updates: 2}\n"
    )
    found = read_ablation(tmp_path / "small.yaml")
    assert (found.seeds, list(found.variants)) == ([5], ["a", "c"])
    assert found.overrides == {"threads": 1, "train.updates": 2}


# --- a sweep's table ---------------------------------------------------------------------------------------


def test_a_sweeps_table_ranks_points_by_their_mean(tmp_path):
    values = {(0.6, 0): 0.2, (0.6, 1): 0.4, (0.9, 0): 0.5, (0.9, 1): 0.7}
    runs = []
    for (theta, seed), value in values.items():
        folder = tmp_path / f"{theta}-{seed}"
        folder.mkdir()
        (folder / "metrics.jsonl").write_text(json.dumps({"update": 2, "eval/success": value}) + "\n")
        (folder / "summary.json").write_text('{"updates": 2}')
        runs.append(Run(folder.name, folder, (), f"theta={theta}", seed, 2, {"credit.scpo.theta": theta}))
    waiting = Run("new", tmp_path / "new", (), "theta=0.7", 0, 2, {"credit.scpo.theta": 0.7})
    found = Found("eval/success", True, [*runs, waiting], ["credit.scpo.theta"])
    rows = found.rows()
    assert [row["credit.scpo.theta"] for row in rows] == [0.9, 0.6, 0.7]
    assert rows[0]["mean"] == pytest.approx(0.6) and rows[0]["sd"] == pytest.approx(0.141421, abs=1e-6)
    assert "| 0.9 | 2 | 0.600 |" in found.table("t").markdown()
    assert "4 of 5 runs finished" in found.table("t").markdown()
    assert [row["credit.scpo.theta"] for row in Found("eval/success", False, runs, ["x"]).rows()] == [
        0.6,
        0.9,
    ]
    svg, _ = found.write_picture(Path(tmp_path / "picture.svg"), "title")
    assert "credit.scpo.theta" in svg.read_text()
