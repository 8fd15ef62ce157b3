"""Reweighters that read a teacher: what they may not change, whatever the table."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from credit.table import StepTable
from tests.credit.teacher_tables import (
    BASE,
    NAN,
    TEACHERS,
    advantages,
    base,
    random_columns,
    reordered,
    run,
    table_with_gaps,
)

FAST = settings(max_examples=12, deadline=None, derandomize=True)
seeds = st.integers(0, 10_000)

SIGN_KEEPING = {
    "rlsd": {},
    "rlsd to the bounds": {"lam": 1.0, "clip": 1.0, "decay": 0},
    "stepopsd": {},
    "stepopsd by its own length": {"temper": "step_length", "lam": 1.0},
    "stepopsd untempered": {"temper": "none", "clip": 0.9},
    "sharpo": {},
    "sharpo by segment": {"balance": "segment", "lam": 0.7},
    "sharpo plain": {"balance": "none", "sign_aware": False},
    "agentopsd": {},
    "agentopsd all in": {"lam": 1.0, "clip": 0.9},
}
keeps_the_sign = pytest.mark.parametrize(
    ("stage", "options"), [pytest.param(k.split()[0], v, id=k) for k, v in SIGN_KEEPING.items()]
)
every_stage = pytest.mark.parametrize("stage", ["rlsd", "stepopsd", "sharpo", "agentopsd", "hcapo"])


@keeps_the_sign
@FAST
@given(seed=seeds)
def test_where_teacher_and_policy_agree_nothing_changes(stage, options, seed):
    columns = random_columns(seed)
    columns["tokens"] = {name: columns["tokens"]["logp_sampled"] for name in ("logp_sampled", *TEACHERS)}
    table = StepTable(**columns)
    assert advantages(stage, options, table).tolist() == base(table).tolist()


@every_stage
@FAST
@given(seed=seeds)
def test_without_any_teacher_nothing_changes(stage, seed):
    table = StepTable(**random_columns(seed, unknown=1.0))
    assert advantages(stage, {}, table).tolist() == base(table).tolist()


@every_stage
@FAST
@given(seed=seeds)
def test_without_weight_nothing_changes(stage, seed):
    table = StepTable(**random_columns(seed))
    off = {"omega": 0.0} if stage == "hcapo" else {"lam": 0.0}
    assert advantages(stage, off, table).tolist() == base(table).tolist()


@keeps_the_sign
@FAST
@given(seed=seeds, scale=st.sampled_from([0.1, 3.0, 1e4]))
def test_signs_stay_and_numbers_are_finite(stage, options, seed, scale):
    table = StepTable(**random_columns(seed, scale=scale))
    got = advantages(stage, options, table)
    assert np.isfinite(got).all()
    assert (np.sign(got) * np.sign(base(table)) >= 0).all()
    if options.get("lam", 0.5) < 1:
        assert np.sign(got).tolist() == np.sign(base(table)).tolist()


@FAST
@given(seed=seeds, clip=st.floats(0.0, 0.9), lam=st.floats(0.0, 1.0))
@pytest.mark.parametrize("stage", ["rlsd", "agentopsd"])
def test_weights_stay_within_the_clip(stage, seed, clip, lam):
    table = StepTable(**random_columns(seed, scale=5.0))
    plain = base(table)
    got = advantages(stage, {"clip": clip, "lam": lam}, table)
    assert (np.abs(got - plain) <= lam * clip * np.abs(plain) + 1e-12).all()


@FAST
@given(seed=seeds, clip=st.floats(0.0, 0.9), temper=st.sampled_from(["mean_length", "step_length", "none"]))
def test_stepopsd_keeps_the_budget_of_every_step(seed, clip, temper):
    table = StepTable(**random_columns(seed, scale=5.0))
    plain = base(table)
    got = advantages("stepopsd", {"clip": clip, "temper": temper, "lam": 1.0}, table)
    weight = np.divide(got, plain, out=np.ones_like(got), where=plain != 0)
    for row in np.flatnonzero(table.length):
        tokens = slice(table.offsets[row], table.offsets[row + 1])
        assert weight[tokens].mean() == pytest.approx(1.0)
    assert (weight <= (1 + clip) / (1 - clip) + 1e-9).all()
    assert (weight >= (1 - clip) / (1 + clip) - 1e-9).all()


@FAST
@given(seed=seeds, balance=st.sampled_from(["token", "segment"]), aware=st.booleans())
def test_sharpo_keeps_the_budget_of_every_trajectory(seed, balance, aware):
    columns = random_columns(seed, scale=5.0, empty=False)
    options = {"balance": balance, "sign_aware": aware, "lam": 1.0}
    table = StepTable(**columns)
    weight = run({**BASE, "sharpo": options}, table).columns["sharpo.weight"]
    share = table.length if balance == "token" else np.ones(len(table))
    for k in set(columns["trajectory"]):
        rows = table.trajectory == k
        assert (share * weight)[rows].sum() == pytest.approx(share[rows].sum())


@FAST
@given(seed=seeds, aware=st.booleans())
def test_sharpo_unbalanced_weights_lie_between_0_and_2(seed, aware):
    table = StepTable(**random_columns(seed, scale=1e3))
    options = {"balance": "none", "sign_aware": aware}
    weight = run({**BASE, "sharpo": options}, table).columns["sharpo.weight"]
    assert (weight[table.length > 0] > 0).all() and (weight <= 2).all()


@FAST
@given(seed=seeds)
def test_what_the_teacher_prefers_more_is_never_worth_less(seed):
    """RLSD and SHARPO (no balance): raising one token's teacher moves its advantage up, in failures too."""
    columns = random_columns(seed, unknown=0.0, empty=False)
    raised = dict(columns["tokens"])
    token = np.random.default_rng(seed).integers(len(raised["logp_peer"]))
    raised["logp_peer"] = raised["logp_peer"].copy()
    raised["logp_peer"][token] += 0.3
    before, after = StepTable(**columns), StepTable(**(columns | {"tokens": raised}))
    for stage, options in (("rlsd", {}), ("sharpo", {"balance": "none"})):
        low, high = (advantages(stage, options, table)[token] for table in (before, after))
        assert high >= low - 1e-12


@FAST
@given(seed=seeds)
def test_stages_of_the_family_commute(seed):
    """Both scale by a factor of their own that depends on the sign of A alone, per token or per row."""
    table = StepTable(**random_columns(seed))
    one = run({**BASE, "rlsd": {}, "sharpo": {}}, table).token_advantage
    other = run({**BASE, "sharpo": {}, "rlsd": {}}, table).token_advantage
    np.testing.assert_allclose(one, other, atol=1e-12)


@every_stage
@FAST
@given(seed=seeds, shuffle=st.randoms(use_true_random=False))
def test_row_order_and_names_change_nothing(stage, seed, shuffle):
    columns = random_columns(seed)
    table = StepTable(**columns)
    straight = run({**BASE, stage: {}}, table, step=1)
    order = list(range(len(table)))
    shuffle.shuffle(order)
    mixed = run({**BASE, stage: {}}, StepTable(**reordered(columns, order)), step=1)
    assert mixed.advantage.tolist() == straight.advantage[order].tolist()
    if straight.token_advantage is not None:
        index = table.token_index(np.array(order))
        assert mixed.token_advantage.tolist() == straight.token_advantage[index].tolist()
    renamed = dict(columns)
    for name in ("group", "trajectory"):
        ids = sorted(set(columns[name]))
        new = dict(zip(ids, shuffle.sample(range(-50, 50), len(ids)), strict=True))
        renamed[name] = [new[i] for i in columns[name]]
    got = run({**BASE, stage: {}}, StepTable(**renamed), step=1)
    np.testing.assert_allclose(got.advantage, straight.advantage, rtol=1e-8, atol=1e-8)


@every_stage
@FAST
@given(seed=seeds)
def test_padding_changes_nothing_and_gets_zero(stage, seed):
    columns = random_columns(seed)
    plain = run({**BASE, stage: {}}, StepTable(**columns), step=1)
    padded = {
        name: [*values[:1], values[0], *values[1:]] for name, values in columns.items() if name != "tokens"
    }
    n = columns["length"][0]
    padded["tokens"] = {
        k: np.concatenate([v[:n], np.full(n, 99.0), v[n:]]) for k, v in columns["tokens"].items()
    }
    padded["padding"] = [i == 1 for i in range(len(padded["t"]))]
    got = run({**BASE, stage: {}}, StepTable(**padded), step=1)
    assert np.delete(got.advantage, 1).tolist() == plain.advantage.tolist()
    assert got.advantage[1] == 0 and got.metrics == plain.metrics


@every_stage
@pytest.mark.parametrize("success", [True, False])
@pytest.mark.parametrize("path", [[[1.0]], [[]], [[NAN, NAN]], [[1.0, NAN], []], [[1e4], [-1e4]]])
def test_finite_on_the_smallest_tables(stage, success, path):
    for trajectories in ([], [(success, path)], [(success, path)] * 3):
        result = run({**BASE, stage: {}}, table_with_gaps(trajectories))
        assert np.isfinite(result.advantage).all()
        assert all(np.isfinite(value) for value in result.metrics.values())
        assert all(np.isfinite(values).all() for values in result.columns.values())
