"""Ablations: statistics by hand, the table's figures from made runs, files that pdflatex and csv read."""

import csv
import io
import json
import re
from pathlib import Path

import numpy as np
import pytest
from scipy import stats as scipy_stats

from configs.text import ConfigError
from eval.compare import compare_all
from eval.experiments.ablation import Ablated, AblationFile, read_ablation
from eval.experiments.folder import Run
from eval.experiments.picture import Dots
from eval.experiments.stats import cohen_h, holm, over_seeds, paired
from eval.experiments.sweep import Found
from eval.result import EvalError, EvalResult, TaskResult, save_eval

FULL = {0: [1, 1, 1, 0], 1: [1, 1, 0, 0], 2: [1, 1, 1, 1]}
LESS = {0: [1, 0, 1, 0], 1: [0, 1, 0, 0], 2: [1, 1, 0, 0]}


def evaluated(won, family=lambda i: "far" if i % 2 else "near"):
    tasks = [
        TaskResult(f"task {i}", family(i), bool(w), float(w), False, 3, 3, 3, 3, 9) for i, w in enumerate(won)
    ]
    return EvalResult(tuple(tasks), seed=0, temperature=1.0, policy_version=0)


# --- statistics --------------------------------------------------------------------------------------------


def test_students_interval_by_hand():
    """0.5, 0.6, 0.7: mean 0.6, sd 0.1; t(0.975, 2) = 4.3027, so half the interval is 4.3027 · 0.1 / √3."""
    found = over_seeds([0.5, 0.6, 0.7])
    assert (found.n, found.mean, found.sd) == (3, pytest.approx(0.6), pytest.approx(0.1))
    assert (
        found.hi - found.mean
        == pytest.approx(0.24841, abs=1e-5)
        == pytest.approx(found.mean - found.lo, abs=1e-5)
    )
    one = over_seeds([0.5])
    assert (one.mean, one.sd, one.lo, one.hi) == (0.5, None, None, None)
    with pytest.raises(ValueError, match="no values"):
        over_seeds([])


def test_the_paired_test_is_scipys_on_the_common_seeds():
    a, b = {0: 0.5, 1: 0.6, 2: 0.9, 7: 0.1}, {2: 0.8, 1: 0.3, 0: 0.4, 8: 1.0}
    found = paired(a, b)
    common = np.array([[a[s], b[s]] for s in (0, 1, 2)])
    assert found.p == pytest.approx(scipy_stats.ttest_rel(common[:, 1], common[:, 0]).pvalue)
    differences = common[:, 1] - common[:, 0]
    assert found.d_z == pytest.approx(differences.mean() / differences.std(ddof=1))
    assert found.difference.n == 3 and found.difference.mean == pytest.approx(differences.mean())
    assert paired({0: 1.0}, {1: 1.0}) is None


def test_differences_without_variance_have_no_test():
    assert paired({0: 0.6, 1: 0.5}, {0: 0.7, 1: 0.6}).p is None  # 0.1 twice, but for rounding
    same = paired({0: 0.6, 1: 0.5}, {0: 0.6, 1: 0.5})
    assert (same.p, same.d_z, same.difference.mean) == (1.0, None, 0.0)
    assert paired({0: 0.6}, {0: 0.7}).p is None


def test_holm_by_hand():
    """Sorted 0.01, 0.02, 0.03, 0.5 times 4, 3, 2, 1, never falling."""
    assert holm([0.5, 0.01, None, 0.03, 0.02]) == pytest.approx([0.5, 0.04, None, 0.06, 0.06])
    assert holm([None, 0.9, 0.8]) == pytest.approx([None, 1.0, 1.0])


def test_cohens_h_by_hand():
    assert cohen_h(0.5, 1.0) == pytest.approx(np.pi / 2)  # 2·(π/2) − 2·(π/4)
    assert cohen_h(0.3, 0.3) == 0.0


def test_pooled_pairs_are_the_counts_added_up():
    found = compare_all([(evaluated(FULL[s]), evaluated(LESS[s])) for s in FULL])
    assert (found.n, found.both, found.lost, found.gained, found.neither) == (12, 5, 4, 0, 3)
    assert found.difference == pytest.approx(-4 / 12) and found.p == pytest.approx(2 * 0.5**4)
    with pytest.raises(EvalError, match="nothing to compare"):
        compare_all([])


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
    assert (less["pooled"], less["p_tasks"]) == (pytest.approx(-1 / 3), pytest.approx(0.125))
    assert less["p_tasks_holm"] == pytest.approx(0.25), "two variants are compared with the reference"
    assert less["h"] == pytest.approx(cohen_h(0.75, 5 / 12))
    assert (begun["seeds"], begun["mean"], begun["lo"], begun["p_seeds"]) == (1, 1.0, None, None)
    assert begun["pooled"] == 0.5, "held against the reference's run of the same seed"
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
    assert float(read[1]["p_tasks"]) == pytest.approx(0.125) and read[0]["difference"] == ""
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


def test_axes_of_pictures():
    assert Dots.of([(0.9, 1.0), (0.6, 2.0), (0.9, 3.0)]).ticks == ["0.6", "0.9"]
    assert Dots.of([("b", 1.0), ("a", 2.0)]).ticks == ["b", "a"], "words keep the order of the file"
    wide = Dots.of([(10.0**-i, 0.0) for i in range(20)])
    assert wide.ticks is None and wide.log
