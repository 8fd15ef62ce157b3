"""What an evaluation counts: intervals by hand, task weighting, round trips, errors."""

import io
import json
from math import sqrt

import pytest
from rich.console import Console

from eval.compare import compare, disjoint
from eval.result import EvalError, EvalResult, TaskResult, load_evals, save_eval
from eval.statistics import wilson
from tests.eval.synthetic import result


@pytest.mark.parametrize(
    ("successes", "n", "lo", "hi"),
    [
        (7, 10, 0.3968, 0.8922),  # (0.7 + 1.9207/10 ± 1.96·√(0.021 + 0.9604/100)) / (1 + 3.8415/10)
        (0, 10, 0.0, 0.2775),  # 3.8415 / 13.8415
        (10, 10, 0.7225, 1.0),
        (152, 400, 0.3338, 0.4285),
        (1, 1, 0.2065, 1.0),
    ],
)
def test_wilson_by_hand(successes, n, lo, hi):
    assert wilson(successes, n) == pytest.approx((lo, hi), abs=5e-5)


def test_wilson_is_the_formula():
    z, k, n = 1.959963985, 7, 10
    centre, spread = k / n + z * z / (2 * n), z * sqrt(0.7 * 0.3 / n + z * z / (4 * n * n))
    expected = [(centre + sign * spread) / (1 + z * z / n) for sign in (-1, 1)]
    assert wilson(k, n) == pytest.approx(expected, abs=1e-8)


def test_success_is_weighted_by_task_not_by_chunk():
    """100 of 140 tasks solved, the last 12 not: 0.714, where a mean of the means of 128 and 12 is 0.391."""
    evaluation = result([1] * 100 + [0] * 40)
    assert evaluation.success == pytest.approx(100 / 140)
    assert evaluation.success != pytest.approx((100 / 128 + 0 / 12) / 2, abs=0.1)


def test_overall_is_weighted_by_task_not_by_family():
    tasks = [TaskResult(f"a{i}", "large", True, 1.0, False, 4, 4, 4, 4, 9) for i in range(9)]
    tasks.append(TaskResult("b0", "small", False, 0.2, True, 24, 12, 6, 6, 9))
    evaluation = EvalResult(tuple(tasks), 0, 0.4, 3)
    assert evaluation.success == 0.9
    assert (evaluation.per_family["small"].rate, evaluation.per_family["small"].n) == (0.0, 1)
    overall = evaluation.overall
    assert overall.score == pytest.approx(0.92)
    assert overall.mean_steps == 6.0
    assert overall.truncated == 0.1
    assert (overall.well_formed, overall.admissible, overall.valid) == (48 / 60, 42 / 60, 42 / 60)
    assert evaluation.tokens == 90


def test_round_trip(tmp_path):
    evaluation = result([1, 0, 1, 1, 0], families=2, version=7)
    assert EvalResult.from_json(evaluation.to_json()) == evaluation
    save_eval(tmp_path, 40, evaluation)
    path = save_eval(tmp_path, 0, result([0] * 5))
    assert path.name == "0000.json"
    assert list(load_evals(tmp_path)) == [0, 40]
    assert load_evals(tmp_path)[40] == evaluation
    assert json.loads(path.read_text())["overall"]["n"] == 5


def test_order_of_tasks_is_no_part_of_a_result():
    evaluation = result([1, 0, 1])
    assert EvalResult(evaluation.tasks[::-1], 0, 0.4, 0) == evaluation


@pytest.mark.parametrize("tasks", [(), result([1]).tasks * 2])
def test_no_tasks_and_tasks_listed_twice_are_errors(tasks):
    with pytest.raises(EvalError, match="eval.split|listed twice"):
        EvalResult(tasks, 0, 0.4, 0)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"tasks": [{}]}', "{half"])
def test_a_broken_file_is_named(tmp_path, text):
    folder = tmp_path / "eval"
    folder.mkdir()
    (folder / "0003.json").write_text(text)
    with pytest.raises(EvalError, match="0003.json"):
        load_evals(tmp_path)


def test_table_shows_families_and_all():
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(result([1, 0, 1, 1], families=2).table("valid_seen"))
    text = console.export_text()
    assert all(
        part in text for part in ("family-0", "family-1", "all tasks", "0.750", "[0.30, 0.95]", "90.0%")
    )


def test_comparison_by_hand():
    """Newcombe's own example: 36 both, 12 and 2 one only, 0 neither of 50; 0.2 [0.0569, 0.3404]."""
    before = result([1] * 36 + [0] * 12 + [1] * 2)
    after = result([1] * 36 + [1] * 12 + [0] * 2)
    paired = compare(before, after)
    assert (paired.n, paired.both, paired.gained, paired.lost, paired.neither) == (50, 36, 12, 2, 0)
    assert (paired.difference, paired.lo, paired.hi) == pytest.approx((0.2, 0.0569, 0.3404), abs=5e-5)
    assert paired.p == pytest.approx(2 * (1 + 14 + 91) / 2**14)  # P(≤ 2 of 14), two-sided


def test_comparison_is_antisymmetric_and_null_without_changes():
    a, b = result([1, 1, 0, 0, 1, 0, 1, 1]), result([1, 0, 1, 1, 1, 0, 0, 1])
    there, back = compare(a, b), compare(b, a)
    assert (there.difference, there.lo, there.hi) == pytest.approx((-back.difference, -back.hi, -back.lo))
    assert there.p == back.p
    same = compare(a, a)
    assert (same.difference, same.p) == (0.0, 1.0)
    assert same.lo <= 0 <= same.hi


def test_comparison_needs_the_same_tasks():
    with pytest.raises(EvalError, match="task-0002"):
        compare(result([1, 0]), result([1, 0, 1]))


def test_disjoint_intervals():
    low, high = result([1] * 152 + [0] * 248), result([1] * 208 + [0] * 192)
    assert disjoint(low, high) and disjoint(high, low)
    assert not disjoint(low, result([1] * 165 + [0] * 235))
