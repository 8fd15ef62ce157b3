"""The best checkpoint in report and summary, and by how much having chosen it flatters."""

import json

import numpy as np
import pytest

from eval.best import best_of, choice, flattery
from eval.report.run_report import report_html
from eval.result import EvalError
from eval.runfolder import RunFolder
from eval.summary import best_text, result_line, summarise
from tests.eval.synthetic import RunWriter, attempted, result, toy_groups

# --- the estimate ------------------------------------------------------------------------------------------


def simulate(rates, difficulty, n, runs, seed):
    """Means over simulated runs: estimate, and what the best really has over its policy's true value."""
    rng = np.random.default_rng(seed)
    estimates, truths = [], []
    for number in range(runs):
        shift = rng.uniform(-difficulty, difficulty, n)  # tasks are easier or harder for all policies alike
        values = (rng.random((len(rates), n)) < np.asarray(rates)[:, None] + shift).astype(float)
        means = values.mean(axis=1)
        estimates.append(flattery(values, number))
        truths.append(means.max() - rates[int(means.argmax())])
    return float(np.mean(estimates)), float(np.mean(truths))


def test_equal_policies_are_flattered_by_the_expected_maximum_less_the_mean():
    """Five evaluations of 134 tasks, success ½: 1.163 standard errors of √(¼/134) = 0.0432, so 0.0502."""
    estimate, truth = simulate([0.5] * 5, 0.0, 134, runs=150, seed=1)
    assert truth == pytest.approx(0.0502, abs=0.006)
    assert estimate == pytest.approx(0.0502, abs=0.004)


def test_tasks_that_are_hard_for_all_flatter_less():
    """Their luck is shared: only what is left of the variance, E q(1 − q), is chosen among."""
    estimate, _ = simulate([0.5] * 5, 0.5, 134, runs=150, seed=2)
    assert estimate == pytest.approx(1.163 * np.sqrt(1 / 6 / 134), abs=0.004)


def test_a_policy_that_is_clearly_best_is_hardly_flattered():
    estimate, truth = simulate([0.2, 0.3, 0.8], 0.0, 134, runs=80, seed=3)
    assert abs(truth) < 0.01 and abs(estimate) < 0.003


def test_where_policies_differ_the_estimate_errs_on_the_side_of_too_much():
    estimate, truth = simulate([0.3, 0.4, 0.5, 0.5, 0.52], 0.2, 134, runs=120, seed=4)
    assert 0 < truth < estimate < 1.35 * truth


def test_the_draws_are_seeded_and_a_single_task_says_nothing():
    values = (np.random.default_rng(0).random((4, 30)) < 0.5).astype(float)
    assert flattery(values, 3) == flattery(values, 3) != flattery(values, 4)
    assert flattery(values[:, :1], 3) is None
    # One evaluation: nothing was chosen, so nothing is flattered but for the noise of the draws.
    assert flattery(values[:1], 3) == pytest.approx(0.0, abs=0.01)


# --- a run -------------------------------------------------------------------------------------------------

OPTIONS = ["checkpoint.keep_best=eval/success", "eval.every=1", "eval.split=valid_seen", "seed=3"]


def made(folder, best, evaluations, updates=3):
    """A run with these evaluations, and what its newest checkpoint says of the best."""
    run = RunWriter(folder, overrides=OPTIONS)
    run.evaluate(0, evaluations[0])
    for update in range(1, updates + 1):
        run.update(update, toy_groups(update))
        run.evaluate(update, evaluations[update])
        run.log(update, evaluations[update].metrics())
    for update, content in best.items():
        checkpoint = run.path / "checkpoints" / f"{update:04d}"
        checkpoint.mkdir(parents=True)
        (checkpoint / "config.json").write_text("{}")
        if content:
            (checkpoint / "best.json").write_text(json.dumps(content))
    return run.path


SOLVED = [[1, 0, 0, 0, 1] * 20, [1, 1, 1, 0, 0] * 20, [1, 1, 0, 0, 0] * 20, [0, 1, 0, 1, 0] * 20]
CHOSEN = {"metric": "eval/success", "value": 0.6, "update": 1, "since": 0}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = made(tmp_path_factory.mktemp("best") / "run", {1: CHOSEN, 3: CHOSEN}, list(map(result, SOLVED)))
    return RunFolder.read(path)


def test_the_best_is_found_beside_the_last(run):
    best = best_of(run)
    assert (best.choice.update, best.among, best.last_update) == (1, (0, 1, 2, 3), 3)
    assert (best.chosen.success, best.last.success) == (0.6, 0.4)
    assert best.flattery == flattery(np.array(SOLVED, dtype=float), 3)


def test_summary_and_last_line_say_it(run):
    summary = summarise(run)["best"]
    assert (summary["update"], summary["success"], summary["last_success"]) == (1, 0.6, 0.4)
    assert (summary["metric"], summary["among"], summary["last_update"]) == ("eval/success", [0, 1, 2, 3], 3)
    assert summary["lo"] < 0.6 < summary["hi"]
    best = best_of(run)
    assert best_text(best) == f"best success 0.60 of 4 after update 1, flattered by about {best.flattery:.2f}"
    assert f"· 3 updates · {best_text(best)} · report" in result_line(run, "r.html")


def test_the_report_says_it(run):
    page = report_html(run)
    assert 'href="#best"' in page
    assert "after update 1 has the highest <code>eval/success</code> of 4 evaluations" in page
    assert f"expect about {0.6 - best_of(run).flattery:.3f}" in page
    assert "on <code>valid_seen</code>: 0.600" in page


def test_a_run_that_keeps_none_says_nothing(finished_run):
    run = RunFolder.read(finished_run.path)
    assert best_of(run) is None and summarise(run)["best"] is None
    assert 'id="best"' not in report_html(run)


def test_the_newest_checkpoint_knows_and_an_older_ones_word_does_not_count(tmp_path):
    older = {"metric": "eval/success", "value": 0.4, "update": 0, "since": 0}
    path = made(tmp_path / "a", {0: older, 3: CHOSEN}, list(map(result, SOLVED)))
    assert choice(path).update == 1
    path = made(tmp_path / "b", {0: older, 3: None}, list(map(result, SOLVED)))
    assert choice(path) is None
    (path / "checkpoints" / "0003" / "best.json").write_text('{"metric": 1}')
    with pytest.raises(EvalError, match=r"0003/best.json does not say"):
        choice(path)


def test_evaluations_before_the_choice_began_do_not_count(tmp_path):
    later = {"metric": "eval/success", "value": 0.4, "update": 2, "since": 2}
    best = best_of(RunFolder.read(made(tmp_path / "run", {3: later}, list(map(result, SOLVED)))))
    assert best.among == (2, 3)


def test_other_tasks_cannot_be_chosen_among(tmp_path):
    evaluations = [result(SOLVED[0]), result(SOLVED[1]), result(SOLVED[2][:50]), result(SOLVED[3])]
    run = RunFolder.read(made(tmp_path / "run", {3: CHOSEN}, evaluations))
    assert best_of(run).flattery is None
    assert "is not estimated" in report_html(run)
    assert "flattered" not in result_line(run, "r.html")


def test_several_attempts_are_chosen_among_by_task_and_reported(tmp_path):
    counts = [[(1, 2), (0, 2), (2, 2)] * 10, [(1, 2), (2, 2), (2, 2)] * 10]
    best = {"metric": "eval/pass_hat/2", "value": 2 / 3, "update": 1, "since": 0}
    run = RunFolder.read(made(tmp_path / "run", {1: best}, list(map(attempted, counts)), updates=1))
    found = best_of(run)
    values = np.array([[0, 0, 1] * 10, [0, 1, 1] * 10], dtype=float)
    assert found.flattery == flattery(values, 3)
    page = report_html(run)
    assert "2 attempts at each" in page and "pass^k" in page
    assert "paired t over tasks" in page and "are solved more often" in page
    line = result_line(run, "r.html")
    assert (
        ", pass@2 0.67 [0.49,0.81] → 1.00 [0.89,1.00], pass^2 0.33 [0.19,0.51] → 0.67 [0.49,0.81] on" in line
    )
    assert "on 30 games × 2 attempts ·" in line
