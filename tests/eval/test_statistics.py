"""Statistics by hand, and by simulation: how often an interval covers what it is about."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from eval.statistics import (
    DIFFERENCE,
    SHARE,
    Interval,
    cohen_h,
    difference_over_both,
    difference_over_tasks,
    holm,
    mcnemar,
    mean_interval,
    newcombe,
    paired,
    share_interval,
    student,
    welch,
    wilson,
)

# --- by hand -----------------------------------------------------------------------------------------------


def test_students_interval_by_hand():
    """0.5, 0.6, 0.7: mean 0.6, sd 0.1; t(0.975, 2) = 4.3027, so half the interval is 4.3027 · 0.1 / √3."""
    found = student([0.5, 0.6, 0.7])
    assert (found.n, found.mean, found.sd) == (3, pytest.approx(0.6), pytest.approx(0.1))
    half = pytest.approx(0.24841, abs=1e-5)
    assert found.hi - found.mean == half == found.mean - found.lo
    assert student([0.5]) == Interval(1, 0.5, None, None, None)
    with pytest.raises(ValueError, match="no values"):
        student([])


def test_an_interval_of_shares_ends_at_0_and_1():
    """The README's row: 0.225 and 0.35, mean 0.2875, half 12.7062 · 0.088388 / √2 = 0.79414."""
    whole = student([0.225, 0.35])
    assert (whole.lo, whole.hi) == pytest.approx((-0.5066, 1.0816), abs=1e-4)
    cut = student([0.225, 0.35], SHARE)
    assert (cut.lo, cut.hi, cut.mean) == (0.0, 1.0, whole.mean)
    inside = student([0.50, 0.51], SHARE)
    assert (inside.lo, inside.hi) == pytest.approx((0.505 - 12.7062 * 0.005, 0.505 + 12.7062 * 0.005))
    assert mean_interval([0.225, 0.35]) == SHARE == mean_interval([0.5])
    assert mean_interval([1.0, 1.0, 1.0]) == wilson(3, 3), (
        "as success, of which a score of 0 or 1 is another name"
    )
    assert mean_interval([1.0, 0.0, 1.0, 1.0]) == wilson(3, 4)
    lo, hi = mean_interval([0.5] * 10)
    assert lo == pytest.approx(wilson(5, 10)[0]) and hi == pytest.approx(wilson(5, 10)[1])


def test_seeds_that_came_to_the_same_do_not_say_how_far_off_the_next_may_be():
    found = student([0.35, 0.35], SHARE)
    assert (found.mean, found.sd, found.lo, found.hi) == (0.35, 0.0, None, None)


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
    assert (same.p, same.d_z, same.difference.mean, same.difference.lo) == (1.0, None, 0.0, None)
    assert paired({0: 0.6}, {0: 0.7}).p is None


def test_a_paired_difference_ends_at_minus_one_and_one():
    found = paired({0: 0.1, 1: 0.9}, {0: 0.9, 1: 0.2}).difference
    assert (found.lo, found.hi) == DIFFERENCE


def test_welch_by_hand_and_cut():
    """Means 0.7 and 0.45, variances 0.01/3 and 0.005/2; t = 0.25 / √0.0058333 = 3.27327."""
    found = welch([0.6, 0.7, 0.8], [0.4, 0.5])
    error, freedom = 0.0058333**0.5, 0.0058333**2 / ((0.01 / 3) ** 2 / 2 + 0.0025**2)
    assert found.p == pytest.approx(2 * scipy_stats.t.sf(0.25 / error, freedom), rel=1e-4)
    assert found.lo == pytest.approx(0.25 - scipy_stats.t.ppf(0.975, freedom) * error, rel=1e-3)
    wide = welch([0.1, 0.9], [0.0, 0.8])
    assert (wide.lo, wide.hi) == DIFFERENCE


def test_holm_by_hand():
    """Sorted 0.01, 0.02, 0.03, 0.5 times 4, 3, 2, 1, never falling."""
    assert holm([0.5, 0.01, None, 0.03, 0.02]) == pytest.approx([0.5, 0.04, None, 0.06, 0.06])
    assert holm([None, 0.9, 0.8]) == pytest.approx([None, 1.0, 1.0])


def test_cohens_h_by_hand():
    assert cohen_h(0.5, 1.0) == pytest.approx(np.pi / 2)  # 2·(π/2) − 2·(π/4)
    assert cohen_h(0.3, 0.3) == 0.0


def test_tasks_played_once_have_wilsons_interval_and_mcnemars_test():
    assert share_interval([1, 0, 1, 1]) == wilson(3, 4)
    before, after = [1, 1, 0, 0, 0, 0, 0, 0], [1, 0, 1, 1, 1, 1, 1, 0]
    found = difference_over_tasks(before, after)
    assert found.p == pytest.approx(2 * (1 + 6) / 2**6) == mcnemar(5, 1)  # P(≤ 1 of 6), two-sided
    assert (found.lo, found.hi) == newcombe(1, 5, 1, 1)


@pytest.mark.parametrize(
    ("quarters", "draws"), [((0, 1 / 3, 2 / 3, 1), 65.915), ((1 / 3, 2 / 3), 120), ((0, 1), 40)]
)
def test_a_task_counts_as_much_as_its_attempts_differ(quarters, draws):
    """40 tasks, 3 attempts, rate ½: of n draws Wilson's interval is ½ ± z / 2√(n + z²).

    Thirds in equal parts: s² = 0.138889 · 40/39, so n* = ¼ · 40 / s² · (1.95996 / 2.02269)² = 65.915.
    Tasks that differ no more than chance would make them are 120 draws, attempts that always agree 40.
    """
    lo, hi = share_interval(list(quarters) * (40 // len(quarters)), 3)
    half = 1.95996 / 2 / np.sqrt(draws + 1.95996**2)
    assert (lo, hi) == pytest.approx((0.5 - half, 0.5 + half), abs=1e-5)


def test_a_difference_over_tasks_by_hand():
    """Differences ½, ½, 0 and two more (+1, −1): mean 0.2, squares about it 2.5 − 5·0.04 = 2.3."""
    found = difference_over_tasks([0.5, 0.5, 0.5], [1.0, 1.0, 0.5])
    error = np.sqrt(2.3 / 4 / 5)
    assert found.p == pytest.approx(2 * scipy_stats.t.sf(0.2 / error, 4))
    half = scipy_stats.t.ppf(0.975, 4) * error
    assert (found.lo, found.hi) == pytest.approx((0.2 - half, min(1.0, 0.2 + half)))
    same = difference_over_tasks([0.5] * 40, [0.5] * 40)
    assert same.p == 1.0 and same.lo < -0.05 and same.hi > 0.05, "40 tasks that agree are not all tasks"


def test_bonett_and_prices_interval_is_that_of_single_attempts():
    """d = (f12 − f21)/(n + 2) ± z·√(((f12 + f21 + 2)/(n + 2) − d²)/(n + 2)), here with Student's quantile."""
    won, lost, n = 30, 12, 200
    rows = np.array([1.0] * won + [-1.0] * lost + [0.0] * (n - won - lost))
    d = (won - lost) / (n + 2)
    error = np.sqrt(((won + lost + 2) / (n + 2) - d**2) / (n + 1))
    # One task is solved half the time by both, so that not all are all-or-nothing.
    before = np.where(rows < 0, 1.0, 0.0)
    before[-1] = 0.5
    found = difference_over_tasks(before, before + rows)
    half = scipy_stats.t.ppf(0.975, n + 1) * error
    assert (found.lo, found.hi) == pytest.approx((d - half, d + half))


def test_errors_clustered_in_two_ways_by_hand():
    """Without noise (d = run + task) the variance is that of the runs' mean plus that of the tasks'."""
    run, task = np.array([0.1, 0.3, 0.2]), np.array([0.0, 0.2, -0.1, 0.3])
    found = difference_over_both(run[:, None] + task[None, :])
    padded = np.array([*(task + run.mean()), 1.0, -1.0])
    of_runs = (run * 4 / 6).var(ddof=1) / 3  # the two tasks more are the same in every run
    # What the padding adds is an interaction of run and task, hence noise, and is taken off once.
    rows = np.hstack([run[:, None] + task[None, :], np.tile([1.0, -1.0], (3, 1))])
    centred = rows - rows.mean(axis=1, keepdims=True) - rows.mean(axis=0) + rows.mean()
    noise = (centred**2).sum() / (2 * 5) / 18
    error = np.sqrt(of_runs + padded.var(ddof=1) / 6 - noise)
    half = scipy_stats.t.ppf(0.975, 2) * error
    assert (found.lo, found.hi) == pytest.approx(
        (max(-1, padded.mean() - half), min(1, padded.mean() + half))
    )
    assert found.p == pytest.approx(2 * scipy_stats.t.sf(padded.mean() / error, 2))
    assert difference_over_both(np.zeros((1, 9))) is None
    nothing = difference_over_both(np.zeros((3, 9)))
    assert nothing.p == 1.0 and nothing.lo == -nothing.hi < 0


# --- laws --------------------------------------------------------------------------------------------------

SHARES = st.lists(st.sampled_from([0.0, 1 / 3, 0.5, 2 / 3, 1.0]), min_size=1, max_size=12)


@given(SHARES, st.randoms(use_true_random=False))
def test_intervals_of_shares_and_differences_never_leave_their_range(rates, random):
    others = random.sample(rates, len(rates))
    ends = [*share_interval(rates, 6), *mean_interval(rates)]
    assert all(0 <= end <= 1 for end in ends)
    found = [difference_over_tasks(rates, others), difference_over_both(np.array([rates, others]) - 0.5)]
    assert all(-1 <= end <= 1 for one in found for end in (one.lo, one.hi))
    assert all(0 <= one.p <= 1 for one in found)
    back = difference_over_tasks(others, rates)
    assert (found[0].lo, found[0].hi) == pytest.approx((-back.hi, -back.lo))


def test_newcombes_interval_stays_between_minus_one_and_one():
    for a, b, c, d in product(range(5), repeat=4):
        if a + b + c + d:
            lo, hi = newcombe(a, b, c, d)
            assert -1 <= lo <= (b - c) / (a + b + c + d) <= hi <= 1


def test_playing_every_task_again_with_the_same_outcome_is_no_evidence():
    """The mean over attempts is what it was, so interval and p are too; counted as new tasks they shrink."""
    rng = np.random.default_rng(0)
    a, b = (rng.integers(0, 2, 60).astype(float) for _ in range(2))
    once, twice = (difference_over_tasks(np.mean([a] * k, axis=0), np.mean([b] * k, axis=0)) for k in (1, 2))
    assert once == twice
    gained, lost = int(((b == 1) & (a == 0)).sum()), int(((b == 0) & (a == 1)).sum())
    assert mcnemar(2 * gained, 2 * lost) < once.p


# --- how often they cover ----------------------------------------------------------------------------------

TASKS, SEEDS, TIMES = 134, 3, 1500


def attempts(rng, *, difference=0.0, spread=0.4, between_runs=0.0, seeds=SEEDS):
    """Success of two methods, bool [2, seeds, TASKS], of which one is better by `difference`.

    On the scale of probabilities: the methods differ on a task by a uniform draw with standard deviation
    `spread` about `difference` (the interaction of task and method: a task is easier for the one, whatever
    the seed), and a pair of runs by a normal draw with standard deviation `between_runs`.
    """
    edge = spread * np.sqrt(3)
    by_task = rng.uniform(-edge, edge, TASKS) + difference
    by_run = between_runs * rng.standard_normal((seeds, 1))
    half = (by_task[None, :] + by_run) / 2
    return rng.random((2, seeds, TASKS)) < np.stack([0.5 - half, 0.5 + half])


def simulate(estimate, times=TIMES, difference=0.0, **options):
    """(share of intervals that hold the true difference, share of p < 0.05) of `estimate` over many draws."""
    rng = np.random.default_rng(20261201)
    found = [estimate(*attempts(rng, difference=difference, **options)) for _ in range(times)]
    covered = np.mean([one.lo <= difference <= one.hi for one in found])
    return covered, np.mean([one.p < 0.05 for one in found])


def by_task(before, after):
    return difference_over_tasks(before.mean(axis=0), after.mean(axis=0))


def pooled(before, after):
    """Seeds × tasks as if all were different tasks."""
    return difference_over_tasks(before.ravel(), after.ravel())


def over_both(before, after):
    return difference_over_both(after.astype(float) - before)


def test_the_interval_over_tasks_covers_and_its_test_keeps_its_size():
    covered, rejected = simulate(by_task)
    assert covered >= 0.935 and rejected <= 0.065
    covered, rejected = simulate(pooled, times=400)
    assert covered < 0.91 and rejected > 0.09, "pooled seeds fail here, so this can tell"


def test_the_test_over_tasks_finds_ten_points():
    _, found = simulate(by_task, times=400, difference=0.1, spread=0.2)
    assert found > 0.6
    _, found = simulate(by_task, times=400, difference=0.2, spread=0.4)
    assert found > 0.9


def test_the_interval_over_seeds_and_tasks_covers_where_the_others_do_not():
    covered, rejected = simulate(over_both, between_runs=0.2, spread=0.2)
    assert covered >= 0.935 and rejected <= 0.065
    covered, _ = simulate(by_task, times=600, between_runs=0.2, spread=0.2)
    assert covered < 0.8, "the interval over tasks is about these runs only"
    _, found = simulate(over_both, times=400, between_runs=0.05, spread=0.2, difference=0.2, seeds=5)
    assert found > 0.9


@pytest.mark.parametrize("attempts_each", [1, 3])
def test_the_interval_of_a_rate_over_tasks_covers(attempts_each):
    """Tasks are hard or easy: solved with probability 0.1 or 0.9, half of them each, so the rate is 0.5."""
    rng = np.random.default_rng(1)
    chance = rng.choice([0.1, 0.9], (TIMES, TASKS))
    won = rng.random((attempts_each, TIMES, TASKS)) < chance
    ends = np.array([share_interval(list(rates), attempts_each) for rates in won.mean(axis=0)])
    assert np.mean((ends[:, 0] <= 0.5) & (ends[:, 1] >= 0.5)) >= 0.935
    if attempts_each > 1:
        counts = won.sum(axis=(0, 2))
        ends = np.array([wilson(int(count), attempts_each * TASKS) for count in counts[:500]])
        assert np.mean((ends[:, 0] <= 0.5) & (ends[:, 1] >= 0.5)) < 0.9, "attempts counted as tasks"
