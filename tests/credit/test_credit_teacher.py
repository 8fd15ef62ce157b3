"""Reweighters that read a teacher: numbers worked out by hand."""

import numpy as np
import pytest

from credit.table import StepTable
from tests.credit.teacher_tables import (
    BASE,
    NAN,
    TEACHERS,
    advantages,
    base,
    random_columns,
    run,
    table_with_gaps,
)

LN = np.log

every_stage = pytest.mark.parametrize("stage", ["rlsd", "stepopsd", "sharpo", "agentopsd", "hcapo"])


# One success of two steps and one failure of one: A = 5, 5, -5.
TWO = [(True, [[LN(2), 0.0], [-LN(4)]]), (False, [[LN(1.1), NAN]])]


def test_rlsd_by_hand():
    table = table_with_gaps(TWO)
    fail = -5 * (1 + 0.5 * (1 / 1.1 - 1))
    np.testing.assert_allclose(advantages("rlsd", {}, table), [5.5, 5, 4.5, fail, -5], atol=1e-12)
    half = run({**BASE, "rlsd": {}}, table, step=25)
    np.testing.assert_allclose(half.token_advantage[:3], [5.25, 5, 4.75], atol=1e-12)
    assert half.metrics["credit/rlsd/lam"] == 0.25
    assert half.metrics["credit/rlsd/teacher_fraction"] == 0.8
    assert half.metrics["credit/rlsd/gap_mean"] == pytest.approx((LN(2) - LN(4) + LN(1.1)) / 4)
    np.testing.assert_allclose(half.columns["rlsd.weight"], [1.1, 0.8, (1 / 1.1 + 1) / 2])
    for late in (50, 80):
        assert advantages("rlsd", {}, table, step=late).tolist() == base(table).tolist()
    np.testing.assert_allclose(advantages("rlsd", {"decay": 0}, table, step=80)[:3], [5.5, 5, 4.5])


def test_stepopsd_by_hand():
    """w = 1.5, 1 in the first step, so w~ = 1.2, 0.8; a step's only token with a teacher keeps 1."""
    table = table_with_gaps(TWO)
    options = {"lam": 0.5, "clip": 0.5, "temper": "none"}
    result = run({**BASE, "stepopsd": options}, table)
    np.testing.assert_allclose(result.token_advantage, [5.5, 4.5, 5, -5, -5], atol=1e-12)
    np.testing.assert_allclose(result.columns["stepopsd.spread"], [0.2, 0, 0], atol=1e-12)
    # a step has 5/3 tokens on average, the first one 2
    for temper, length in (("mean_length", 5 / 3), ("step_length", 2)):
        w = 2 ** (1 / length)
        got = advantages("stepopsd", {"lam": 1.0, "clip": 0.9, "temper": temper}, table)
        np.testing.assert_allclose(got[:2], [5 * 2 * w / (w + 1), 5 * 2 / (w + 1)], atol=1e-12)


def test_sharpo_by_hand():
    """g = ln 3 over two tokens, -ln 3 over one: w = 1.5, 0.5; tokens balance by 3 / 3.5."""
    table = table_with_gaps([(True, [[2 * LN(3), 0.0], [-LN(3)]]), (False, [[LN(3)]])])
    half = {"lam": 0.5}
    np.testing.assert_allclose(
        run({**BASE, "sharpo": half}, table).advantage, [5 * 8 / 7, 5 * 5 / 7, -5], atol=1e-12
    )
    by_step = run({**BASE, "sharpo": half | {"balance": "segment"}}, table)
    np.testing.assert_allclose(by_step.advantage, [6.25, 3.75, -5], atol=1e-12)
    free = half | {"balance": "none"}
    np.testing.assert_allclose(run({**BASE, "sharpo": free}, table).advantage, [6.25, 3.75, -3.75])
    plain = free | {"sign_aware": False}
    np.testing.assert_allclose(run({**BASE, "sharpo": plain}, table).advantage, [6.25, 3.75, -6.25])


def test_a_step_without_teacher_is_no_part_of_the_balance():
    table = table_with_gaps([(True, [[LN(3), LN(3)], [NAN], [-LN(3)]]), (False, [[0.0]])])
    got = run({**BASE, "sharpo": {"lam": 1.0}}, table).advantage
    np.testing.assert_allclose(got, [5 * 9 / 7, 5, 5 * 3 / 7, -5], atol=1e-12)


def test_agentopsd_by_hand():
    """Belief 1/2 → 3/4 → 1/2: q = 1/4, -1/4, z = 1, -1."""
    table = table_with_gaps([(True, [[LN(3), 0.0], [-LN(3) / 2]]), (False, [[LN(3)]])])
    result = run({**BASE, "agentopsd": {"gamma": 0.5, "eps": 0.0}}, table)
    np.testing.assert_allclose(result.columns["agentopsd.belief"], [0.75, 0.5, 0.75], atol=1e-12)
    np.testing.assert_allclose(result.advantage, [5.5, 4.5, -5], atol=1e-12)


def test_agentopsd_punishes_what_raised_the_belief_least():
    """The same evidence in a failure: its first step looked right, so it is punished less."""
    path = [[LN(3), 0.0], [-LN(3) / 2]]
    table = table_with_gaps([(True, [[0.0]]), (False, path)])
    got = run({**BASE, "agentopsd": {"gamma": 0.5, "eps": 0.0}}, table).advantage
    np.testing.assert_allclose(got, [5, -4.5, -5.5], atol=1e-12)


def test_agentopsd_without_a_success_in_the_group_stays_finite():
    table = table_with_gaps([(False, [[4.0], [-9.0]]), (False, [[1.0]])])
    result = run({**BASE, "agentopsd": {"floor": 0.1}}, table)
    assert np.isfinite(result.advantage).all()
    assert result.columns["agentopsd.belief"][2] == pytest.approx(1 / (1 + 9 * np.exp(-1)))


HCAPO = {"temperature": 1.0, "smoothing": 0.0, "eps": 0.0}


def hcapo(table, **options):
    method = {"returns": {"gamma": 1.0}, **BASE, "hcapo": HCAPO | options}
    return run(method, table)


def test_hcapo_by_hand():
    """Ratios 1.1, 4 clipped to 1.2, 0.9 on returns 10, 10, 0."""
    table = table_with_gaps([(True, [[2 * LN(1.1), 0.0], [LN(4)]]), (False, [[LN(0.9)]])])
    result = hcapo(table)
    np.testing.assert_allclose(result.columns["hcapo.ratio"], [1.1, 1.2, 0.9])
    q = np.array([11.0, 12.0, 0.0])
    micro = (q - q.mean()) / q.std(ddof=1)
    np.testing.assert_allclose(result.advantage, np.array([5, 5, -5]) + micro, atol=1e-12)
    assert result.metrics["credit/hcapo/clipped_fraction"] == pytest.approx(1 / 3)
    np.testing.assert_allclose(hcapo(table, smoothing=0.5).columns["hcapo.q"], [11.5, 12, 0])
    np.testing.assert_allclose(hcapo(table, temperature=2.0).columns["hcapo.ratio"][1], 1.2)
    np.testing.assert_allclose(hcapo(table, temperature=20.0).columns["hcapo.ratio"][1], 4 ** (1 / 20))
    own = hcapo(table, peers="trajectory").columns["hcapo.micro"]
    np.testing.assert_allclose(own, [0, 1 / np.sqrt(2), 0], atol=1e-12)


def test_hcapo_with_ratios_to_the_trajectory_mean():
    """Teacher log-probabilities 0 and -ln 3 a token: h = 1, 1/3, mean 2/3, ratios 1.5 and 0.5."""
    table = table_with_gaps([(True, [[1.0], [1.0 - LN(3), 1.0 - LN(3)]]), (False, [[0.0]])])
    got = hcapo(table, ratio="trajectory", low=0.0, high=9.0).columns["hcapo.ratio"]
    np.testing.assert_allclose(got, [1.5, 0.5, 1.0])


def test_hcapo_does_no_harm_to_successes():
    """Ratios 0.8 and 1.2 of two successes, whose outcome term is 0."""
    table = table_with_gaps([(True, [[-3.0]]), (True, [[3.0]])])
    harmless, free = hcapo(table), hcapo(table, do_no_harm=False)
    np.testing.assert_allclose(free.advantage, [-1 / np.sqrt(2), 1 / np.sqrt(2)])
    np.testing.assert_allclose(harmless.advantage, [0, 1 / np.sqrt(2)])


@every_stage
def test_the_other_teacher_can_be_chosen(stage):
    columns = random_columns(1)
    columns["tokens"]["logp_peer"] = columns["tokens"]["logp_sampled"]
    table = StepTable(**columns)
    quiet = advantages(stage, {"teacher": "peer"}, table)
    loud = advantages(stage, {"teacher": "hindsight"}, table)
    assert quiet.tolist() != loud.tolist()


@every_stage
def test_columns_are_named_and_checked(stage):
    table = table_with_gaps(TWO)
    with pytest.raises(ValueError, match=f"credit.{stage} reads the token column 'logp_.*'"):
        run({**BASE, stage: {}}, table_with_gaps(TWO, tokens={}))
    tokens = dict(table.tokens)
    infinite = tokens | {name: np.full(5, -np.inf) for name in TEACHERS}
    with pytest.raises(ValueError, match="token 0 is -inf, expected a finite log-prob.*or NaN where"):
        run({**BASE, stage: {}}, table_with_gaps(TWO, tokens=infinite))
    with pytest.raises(ValueError, match="'logp_sampled'.*token 0 is nan, expected a finite log-prob"):
        run({**BASE, stage: {}}, table_with_gaps(TWO, tokens=tokens | {"logp_sampled": np.full(5, np.nan)}))
