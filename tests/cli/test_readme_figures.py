"""The writer of the README's figures: only the blocks of the runs named change."""

import re

import pytest

from bench import readme

TEXT = """# T
<!-- line:one -->
```
$ make train
old
```
<!-- /line -->
<!-- figures:one -->
<!-- /figures -->
<!-- figures:two -->
kept
<!-- /figures -->
<!-- ablation:parts -->
before
<!-- /ablation -->
"""


class Run:
    """As much of a run folder as the text needs."""

    method = "scpo"

    def __init__(self, name, seed):
        self.name, self.seed = name, seed

    def get(self, key):
        return {"name": self.name, "seed": self.seed}[key]


@pytest.fixture(autouse=True)
def figures(monkeypatch):
    rate = {"success": 0.5, "lo": 0.4, "hi": 0.6, "score": 0.7, "score_lo": 0.65, "score_hi": 0.75}
    summary = {"updates": 3, "n": 9, "before": rate, "after": rate, "difference": 0.0, "lo": -0.1, "hi": 0.1}
    summary |= {"method": "scpo", "seconds": 120}

    def summarise(run):
        return summary | {"seed": run.seed, "graded": run.name == "two"}

    monkeypatch.setattr(readme, "summarise", summarise)
    monkeypatch.setattr(readme, "last_line", lambda run: f"line of {run.name} {run.seed}\n")


def test_blocks_of_the_runs_are_filled_and_others_kept():
    filled = readme.fill(TEXT, [Run("one", 2), Run("one", 0)])
    assert "$ make train\nline of one 2\n```" in filled, "the line is that of the first run named"
    assert "old" not in filled
    assert "kept" in filled
    seeds = re.findall(r"^\| SCPO \| (\d) \| 3 \| 9 \| 0\.50 \[0\.40, 0\.60\]", filled, re.MULTILINE)
    assert seeds == ["0", "2"]
    assert readme.fill(filled, [Run("one", 2), Run("one", 0)]) == filled


def test_the_table_of_an_ablation_is_put_in_as_it_was_written():
    filled = readme.fill(TEXT, [], {"parts": "| a |\n"})
    assert filled == TEXT.replace("before\n", "| a |\n")
    with pytest.raises(SystemExit, match="no block for other; it has one, parts, two"):
        readme.fill(TEXT, [], {"other": ""})


def test_scores_have_columns_where_tasks_are_solved_in_part():
    filled = readme.fill(TEXT, [Run("two", 0)])
    assert "| difference | score before | score after | minutes |" in filled
    assert "| +0.00 [-0.10, +0.10] | 0.70 [0.65, 0.75] | 0.70 [0.65, 0.75] | 2 |" in filled
    assert "score before" not in readme.fill(TEXT, [Run("one", 0)])


def test_an_experiment_without_a_block_is_an_error():
    with pytest.raises(SystemExit, match="no block for three; it has one, parts, two"):
        readme.fill(TEXT, [Run("three", 0)])


def test_the_readme_has_its_blocks():
    text = readme.README.read_text(encoding="utf-8")
    assert {m[2] for m in readme.LINE.finditer(text)} == {"alfworld_cpu", "alfworld_cpu_long", "webshop_cpu"}
    assert {m[2] for m in readme.TABLE.finditer(text)} == {"alfworld_cpu", "webshop_cpu"}
