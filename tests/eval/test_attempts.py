"""Several attempts at each task: estimates by hand, intervals that hold, and one attempt as it was."""

import json
from itertools import combinations
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval.compare import MCNEMAR, STUDENT, compare, compare_all
from eval.pass_rates import pass_at, pass_hat, pass_rates, reported
from eval.result import EvalError, EvalResult, TaskResult
from eval.statistics import _wilson, share_interval, wilson
from eval.summary import passes_text, played_text
from tests.eval.synthetic import attempted, printed, result

# --- pass@k and pass^k -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("solved", "attempts", "j", "at", "hat"),
    [
        (1, 4, 1, 1 / 4, 1 / 4),
        (1, 4, 2, 1 / 2, 0.0),  # of the 6 pairs 3 hold the success: 1 − C(3,2)/C(4,2)
        (2, 4, 2, 5 / 6, 1 / 6),  # 1 − 1/6; one pair of six is both
        (3, 5, 2, 9 / 10, 3 / 10),  # 1 − C(2,2)/C(5,2); C(3,2)/C(5,2)
        (3, 5, 3, 1.0, 1 / 10),  # two failures cannot fill a triple
        (0, 8, 8, 0.0, 0.0),
        (7, 8, 8, 1.0, 0.0),
        (8, 8, 8, 1.0, 1.0),
    ],
)
def test_estimates_by_hand(solved, attempts, j, at, hat):
    assert pass_at(solved, attempts, j) == pytest.approx(at)
    assert pass_hat(solved, attempts, j) == pytest.approx(hat)


@given(st.lists(st.booleans(), min_size=1, max_size=8), st.integers(1, 8))
def test_estimates_are_the_share_of_subsets(outcomes, j):
    j = min(j, len(outcomes))
    subsets = list(combinations(outcomes, j))
    solved, n = sum(outcomes), len(outcomes)
    assert pass_at(solved, n, j) == pytest.approx(sum(map(any, subsets)) / len(subsets))
    assert pass_hat(solved, n, j) == pytest.approx(sum(map(all, subsets)) / len(subsets))


@pytest.mark.parametrize("q", [0.1, 0.5, 0.8])
def test_estimates_have_no_bias(q):
    """Their expectation over Binomial(6, q) is 1 − (1 − q)^j and q^j."""
    weights = [comb(6, c) * q**c * (1 - q) ** (6 - c) for c in range(7)]
    for j in range(1, 7):
        assert np.dot(weights, [pass_at(c, 6, j) for c in range(7)]) == pytest.approx(1 - (1 - q) ** j)
        assert np.dot(weights, [pass_hat(c, 6, j) for c in range(7)]) == pytest.approx(q**j)


def test_what_is_reported():
    assert [reported(k) for k in (1, 2, 3, 4, 10)] == [(), (2,), (2, 3), (2, 4), (2, 4, 8, 10)]


def test_rates_over_tasks_by_hand():
    """Tasks with 0, 1, 3 and 4 of 4: pass@4 = 3/4, pass^4 = 1/4; pass@2 = (0 + 1/2 + 1 + 1)/4."""
    two, four = pass_rates([0, 1, 3, 4], 4)
    assert (two.j, four.j) == (2, 4)
    assert (four.at, four.hat) == (0.75, 0.25)
    assert (two.at, two.hat) == pytest.approx((0.625, (0 + 0 + 1 / 2 + 1) / 4))
    # Whether any, or all, of a task's attempts succeed is one draw per task: Wilson's interval of 3, 1 of 4.
    assert (four.at_lo, four.at_hi) == pytest.approx(wilson(3, 4))
    assert (four.hat_lo, four.hat_hi) == pytest.approx(wilson(1, 4))


# --- intervals ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("successes", "n"), [(0, 5), (3, 10), (10, 10), (152, 400)])
def test_of_whole_numbers_it_is_wilsons(successes, n):
    assert _wilson(successes / n, n) == pytest.approx(wilson(successes, n))
    assert share_interval([1.0] * successes + [0.0] * (n - successes)) == wilson(successes, n)


def test_tasks_that_always_come_out_the_same_are_one_draw_each():
    """Every task 0 of 8 or 8 of 8: as sure as one attempt, not as eight."""
    values = [1.0] * 40 + [0.0] * 60
    assert share_interval(values, 8) == pytest.approx(wilson(40, 100))


def test_tasks_that_are_all_alike_are_as_many_draws_as_attempts():
    assert share_interval([0.5] * 50, 4) == pytest.approx(wilson(100, 200))


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_without_any_success_or_failure_the_tasks_count(value):
    assert share_interval([value] * 30, 4) == pytest.approx(wilson(int(30 * value), 30))


def coverage(difficulty, n, k, intervals, runs=1000):
    """Share of intervals that hold the true mean, of tasks whose success has a Beta distribution."""
    rng, held = np.random.default_rng(7), np.zeros(len(intervals))
    truth = difficulty[0] / sum(difficulty)
    for _ in range(runs):
        solved = rng.binomial(k, rng.beta(*difficulty, size=n))
        ends = [interval(solved) for interval in intervals]
        held += [lo <= truth <= hi for lo, hi in ends]
    return held / runs


@pytest.mark.parametrize(("a", "b"), [(0.3, 0.3), (1.0, 1.0), (0.5, 0.1), (5.0, 95.0), (50.0, 50.0)])
def test_the_interval_covers_what_it_says(a, b):
    """134 tasks × 4 attempts: at least 93 %; counting attempts as draws, 75 % where tasks differ."""
    clustered, naive = coverage(
        (a, b), 134, 4, [lambda c: share_interval(list(c / 4), 4), lambda c: _wilson(c.mean() / 4, 134 * 4)]
    )
    assert 0.93 <= clustered <= 0.975
    assert clustered >= naive - 0.005
    if a < 1:
        assert naive < 0.80


def test_intervals_of_pass_rates_cover_too():
    """Beta(½, ½) success: P(one of 2) = 1 − E(1 − q)² = 1 − 3/8, P(both) = 3/8."""
    rng, held = np.random.default_rng(3), np.zeros(2)
    for _ in range(800):
        solved = rng.binomial(4, rng.beta(0.5, 0.5, size=134))
        two = pass_rates([int(c) for c in solved], 4)[0]
        held += [two.at_lo <= 5 / 8 <= two.at_hi, two.hat_lo <= 3 / 8 <= two.hat_hi]
    assert np.all(held / 800 >= 0.93)


# --- a result with several attempts ------------------------------------------------------------------------

FOUR = [(0, 4), (1, 4), (3, 4), (4, 4)]


def test_a_result_counts_by_task():
    evaluation = attempted(FOUR, families=2)
    assert (evaluation.n, evaluation.samples, evaluation.successes) == (4, 4, 8)
    assert evaluation.success == 0.5
    assert evaluation.task_ids == [f"task-{i:04d}" for i in range(4)]
    assert list(evaluation.per_task().values()) == [0.0, 0.25, 0.75, 1.0]
    assert list(evaluation.per_task("eval/pass_at/4").values()) == [0.0, 1.0, 1.0, 1.0]
    assert list(evaluation.per_task("eval/success/family-1").values()) == [0.25, 1.0]
    assert evaluation.per_family["family-1"].rate == pytest.approx(5 / 8)
    assert evaluation.overall.mean_steps == 10.0
    naive = wilson(8, 16)
    assert evaluation.ci[0] < naive[0] and naive[1] < evaluation.ci[1]


def test_tasks_that_all_come_out_alike_do_not_make_the_score_certain():
    overall = attempted([(1, 3)] * 4).overall
    assert (overall.score_lo, overall.score_hi) == (overall.lo, overall.hi) == pytest.approx(wilson(4, 12))


@pytest.mark.parametrize("metric", ["success", "score", "success/family-0", "pass_at/2", "pass_hat/4"])
def test_a_metric_is_the_mean_of_the_tasks_values(metric):
    evaluation = attempted(FOUR, families=2)
    values = evaluation.per_task(f"eval/{metric}")
    assert np.mean(list(values.values())) == pytest.approx(evaluation.metrics()[f"eval/{metric}"])


@pytest.mark.parametrize("metric", ["valid", "success_lo", "pass_at/9", "pass_at", "score/look"])
def test_other_metrics_are_no_means_over_tasks(metric):
    with pytest.raises(EvalError, match="is no mean over tasks"):
        attempted(FOUR).per_task(f"eval/{metric}")


def test_several_attempts_come_back_from_a_file_and_are_shown():
    evaluation = attempted(FOUR, families=2)
    assert EvalResult.from_json(evaluation.to_json()) == evaluation
    metrics = evaluation.metrics()
    assert (metrics["eval/samples"], metrics["eval/pass_at/4"], metrics["eval/pass_hat/4"]) == (4, 0.75, 0.25)
    text = printed(evaluation.table("valid_seen"))
    assert all(part in text for part in ("4 attempts", "pass@4", "pass^2", "0.750", "all tasks"))
    assert played_text(evaluation, "games") == "4 games × 4 attempts"
    assert passes_text(evaluation).startswith(", pass@4 0.75 [0.30,0.95], pass^4 0.25 [0.05,0.70]")


def test_one_attempt_is_as_it_was():
    """A file of an earlier version reads as one attempt; figures, metrics and table say nothing new."""
    evaluation = result([1, 0, 1, 1], families=2)
    document = json.loads(evaluation.to_json())
    for record in document["tasks"]:
        del record["attempt"]
    assert EvalResult.from_json(json.dumps(document)) == evaluation
    assert evaluation.ci == wilson(3, 4)
    assert not any("pass" in name or "samples" in name for name in evaluation.metrics())
    assert passes_text(evaluation) == "" and played_text(evaluation, "games") == "4 games"
    assert "pass@" not in printed(evaluation.table())


def test_tasks_attempted_unequally_often_are_an_error():
    whole = attempted(FOUR).tasks
    for records in (whole[:-1], whole[1:], whole[:3] + whole[4:]):
        with pytest.raises(EvalError, match="the same attempts"):
            EvalResult(records, 0, 0.4, 0)
    with pytest.raises(EvalError, match="listed twice"):
        EvalResult((*whole, whole[0]), 0, 0.4, 0)


# --- comparisons -------------------------------------------------------------------------------------------


def test_comparison_of_several_attempts_by_hand():
    """Changes +½, +½, 0, 0 and two imagined ones, +1, −1: mean 1/6, s² = 2.3333/5, t(5) = 2.570582."""
    before = attempted([(0, 4), (1, 4), (2, 4), (0, 4)])
    after = attempted([(2, 4), (3, 4), (2, 4), (0, 4)])
    found = compare(before, after)
    assert found.test == STUDENT
    assert (found.gained, found.lost, found.both, found.neither) == (2, 0, 1, 1)
    assert (found.difference, found.before, found.after) == pytest.approx((0.25, 3 / 16, 7 / 16))
    margin = 2.570582 * 0.278887
    assert (found.lo, found.hi) == pytest.approx((1 / 6 - margin, 1 / 6 + margin), abs=1e-5)
    assert found.p == pytest.approx(0.57616, abs=1e-4)
    back = compare(after, before)
    assert (back.lo, back.hi, back.p) == pytest.approx((-found.hi, -found.lo, found.p))
    assert compare(after, after).p == 1.0


def test_one_attempt_is_compared_as_before_and_with_several_too():
    one = result([1, 0, 0, 1])
    assert compare(one, one).test == MCNEMAR
    assert compare(one, attempted(FOUR)).difference == pytest.approx(0.0)
    assert compare_all([(one, attempted(FOUR))] * 2).n == 4, "tasks, however often they were played"


def test_records_of_an_attempt_keep_their_number():
    records = [TaskResult("a", "f", a == 1, float(a == 1), False, 4, 4, 4, 4, 9, attempt=a) for a in (1, 0)]
    evaluation = EvalResult(tuple(records), 0, 0.4, 0)
    assert [record.attempt for record in evaluation.by_task["a"]] == [0, 1]
    assert evaluation.tokens == 18
