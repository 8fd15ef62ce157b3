"""ProGPO's peers of the same past and its potentials: by hand, against the definition, and in the limit."""

from difflib import SequenceMatcher
from statistics import variance

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from credit.parts.anchors import prefix_peers
from credit.parts.state_values import Visits, potentials, step_visits
from credit.pipeline import Pipeline
from credit.signals import Context, Signals
from credit.stages.progpo_peer import ProGPOPeer
from tests.credit.paths import groups, path, table_of

FAST = settings(max_examples=15, deadline=None, derandomize=True)
THIRD = 10 / 3


def progpo(**options):
    plain = {"norm": "mean", "semantic": "exact", "depths": 1, "potential_gamma": 1.0, "loo": False}
    return Pipeline.from_config({"returns": {"gamma": 1.0}, "progpo_peer": plain | options})


def by_hand():
    """A wins; B turns back at the second state; C goes its own way. Returns are 10, 0 and 0 throughout."""
    return table_of(
        [
            [
                (True, path("x:go y:take z:open")),
                (False, path("x:go y:look y:look")),
                (False, path("x:look z:look")),
            ]
        ],
        ends={1: "x", 2: "y"},
    )


def test_rows_with_the_same_past_are_peers():
    peers = prefix_peers(by_hand())
    assert [peers[0], peers[1]] == [peers[3], peers[4]] and peers[0] == peers[6]
    assert len(set(peers.tolist())) == 5  # x · x go y · z and y of A and B · z of C


@pytest.mark.parametrize(
    ("loo", "filled"),
    [
        # Φ(x) = 10/3, Φ(y) = 5, Φ(z) = 5: A wins from z, B goes y → x, C goes z → y
        (False, (10 - 5, THIRD - 5, 0.0)),
        # A without itself knows z from C: 0; B without itself x: 5, y: 10; C without itself y: 5, z: 10
        (True, (10 - 0, 5 - 10, 5 - 10)),
    ],
)
def test_peer_terms_and_filled_terms_by_hand(loo, filled):
    result = progpo(loo=loo).run(by_hand())
    peers = [2 * THIRD, 5.0, -THIRD, -5.0, -THIRD]
    step = [peers[0], peers[1], filled[0], peers[2], peers[3], filled[1], peers[4], filled[2]]
    np.testing.assert_allclose(result.columns["progpo_peer.step"], step, atol=1e-12)
    outcome = np.repeat([2 * THIRD, -THIRD, -THIRD], [3, 3, 2])
    np.testing.assert_allclose(result.advantage, outcome + step, atol=1e-12)
    assert result.columns["progpo_peer.peers"].tolist() == [3, 2, 1, 3, 2, 1, 3, 1]


def test_add_gives_the_potential_to_every_row():
    result = progpo(fill_mode="add", transition=0.5).run(by_hand())
    change = [5 - THIRD, 0.0, 5.0, 5 - THIRD, 0.0, THIRD - 5, 5 - THIRD, 0.0]
    np.testing.assert_allclose(result.columns["progpo_peer.transition"], change, atol=1e-12)
    alone = np.array([0, 0, 1, 0, 0, 1, 0, 1], dtype=bool)
    step = progpo(transition=0.5).run(by_hand()).columns["progpo_peer.step"]
    np.testing.assert_allclose(
        result.columns["progpo_peer.step"], step + ~alone * 0.5 * np.array(change), atol=1e-12
    )


def test_a_step_into_the_unknown_gets_nothing():
    """B ends where nobody was; without itself nobody else was at its state either."""
    table = table_of([[(True, path("x:go")), (False, path("x:look q:look"))]], ends={1: "nowhere"})
    for loo in (False, True):
        result = progpo(loo=loo).run(table)
        assert result.columns["progpo_peer.step"].tolist() == [5.0, -5.0, 0.0]


def test_division_brings_both_kinds_to_one_size():
    table = by_hand()
    scaled, raw = progpo(norm="mean_std", eps=0.0).run(table), progpo().run(table)
    sigma = np.std([10] * 3 + [0] * 5, ddof=1)
    want, got = raw.columns["progpo_peer.step"], scaled.columns["progpo_peer.step"]
    np.testing.assert_allclose(got[[2, 5, 7]], want[[2, 5, 7]] / sigma, atol=1e-12)
    np.testing.assert_allclose(got[[1, 4]], [5 / np.std([10, 0], ddof=1), -5 / np.std([10, 0], ddof=1)])


def test_fusion_by_hand():
    """B's third state is y after y: y alone has two returns, (y, y) only B's."""
    table = by_hand()
    values = np.array([10.0] * 3 + [0.0] * 5)
    sigma2 = np.var(values, ddof=1)
    got, known = potentials(Visits.of(table), values, depths=2, loo=False, var_prior=1.0)
    w1, w2 = 2 / (50 + sigma2), 1 / sigma2
    here, there = step_visits(table)
    assert got[here[5]] == pytest.approx(w1 * 5 / (w1 + w2))
    # its first state has no longer history
    assert got[here[3]] == pytest.approx(THIRD)
    assert known.all() and got[there[2]] == 0.0


def test_without_a_prior_an_estimate_without_variance_is_certain():
    table = by_hand()
    values = np.array([10.0] * 3 + [0.0] * 5)
    got, _ = potentials(Visits.of(table), values, depths=2, loo=False, var_prior=0.0)
    here, _ = step_visits(table)
    assert got[here[5]] == 0.0  # (y, y) of B alone; y has variance 50


def test_a_trajectory_counts_once_at_a_state_with_its_first_return():
    table = table_of([[(True, path("x:go x:go y:go")), (False, path("x:go"))]])
    values = np.array([4.0, 6.0, 10.0, 0.0])
    got, _ = potentials(Visits.of(table), values, depths=1, loo=False, var_prior=1.0)
    here, _ = step_visits(table)
    assert got[here].tolist() == [2.0, 2.0, 10.0, 2.0]


@FAST
@given(groups=groups, depths=st.integers(1, 3), loo=st.booleans(), prior=st.sampled_from([0.0, 0.5, 1.0]))
def test_potentials_are_those_of_the_definition(groups, depths, loo, prior):
    table = table_of(groups)
    values = np.random.default_rng(0).normal(size=len(table))
    got, known = potentials(Visits.of(table), values, depths=depths, loo=loo, var_prior=prior)
    here, _ = step_visits(table)
    for i in range(len(table)):
        want = slow_potential(table, values, i, depths, loo, prior)
        assert known[here[i]] == (want is not None)
        assert got[here[i]] == pytest.approx(0.0 if want is None else want, abs=1e-9)


def slow_potential(table, values, i, depths, loo, prior):
    members = np.flatnonzero(table.group == table.group[i])
    sigma2 = np.var(values[members], ddof=1) if len(members) > 1 else 0.0
    estimates = []
    for h in range(1, depths + 1):
        first = {}
        for j in members:
            fits = table.t[i] >= h - 1 and table.t[j] >= h - 1
            if fits and table.anchor[i - h + 1 : i + 1].tolist() == table.anchor[j - h + 1 : j + 1].tolist():
                first.setdefault(table.trajectory[j], values[j])
        if loo:
            first.pop(table.trajectory[i], None)
        if first:
            x = list(first.values())
            spread = variance(x) if len(x) > 1 else 0.0  # in fractions: equal values give exactly 0
            estimates.append((np.mean(x), (spread + prior * sigma2) / len(x)))
    if not estimates:
        return None
    certain = [mean for mean, variance in estimates if variance == 0]
    if certain:
        return np.mean(certain)
    return sum(m / v for m, v in estimates) / sum(1 / v for _, v in estimates)


def tables_of_few_returns(number, members=5):
    """Groups of walks whose returns come again and again: each as it is and in another order, the order."""
    rng = np.random.default_rng(1)
    for _ in range(number):
        paths = [[("ab"[rng.integers(2)], "go") for _ in range(rng.integers(2, 5))] for _ in range(members)]
        few = [0.0, *(10 * 0.95 ** rng.integers(0, 30, 2) - 0.1 * rng.integers(0, 2, 2))]
        values = [rng.choice(few, len(p), p=[0.1, 0.2, 0.7]) for p in paths]
        order = rng.permutation(members)
        yield ordered(paths, values, range(members)), ordered(paths, values, order), order


def ordered(paths, values, order):
    returns = np.concatenate([values[k] for k in order])
    return table_of([[(True, paths[k]) for k in order]], return_to_go=returns)


def test_without_a_prior_equal_values_are_certain_whoever_asks():
    """What is left of their sums must not be a variance."""
    for table, _, _ in tables_of_few_returns(60):
        values = table.return_to_go
        got, _ = potentials(Visits.of(table), values, depths=3, loo=True, var_prior=0.0)
        here, _ = step_visits(table)
        want = [slow_potential(table, values, i, 3, True, 0.0) or 0.0 for i in range(len(table))]
        np.testing.assert_allclose(got[here], want, atol=1e-9)


def test_without_a_prior_the_order_of_siblings_does_not_matter():
    method = Pipeline.from_config({"progpo_peer": {"var_prior": 0.0, "semantic": "exact"}})
    for table, mixed, order in tables_of_few_returns(400):
        plain, other = (method.run(t).columns["progpo_peer.potential"] for t in (table, mixed))
        plain = np.split(plain, table.trajectory_start[1:-1])
        np.testing.assert_allclose(other, np.concatenate([plain[k] for k in order]), atol=1e-9)


@FAST
@given(groups=groups, unit=st.sampled_from(["trajectories", "rows"]))
def test_without_a_step_term_it_is_grpo(groups, unit):
    table = table_of(groups)
    got = Pipeline.from_config({"returns": {}, "progpo_peer": {"omega": 0.0, "unit": unit}}).run(table)
    want = Pipeline.from_config({"returns": {}, "grpo": {"unit": unit}}).run(table)
    np.testing.assert_allclose(got.advantage, want.advantage, atol=1e-12)


@FAST
@given(groups=groups, norm=st.sampled_from(["mean", "mean_std"]))
def test_without_potentials_it_is_gigpo_where_a_state_is_its_past(groups, norm):
    told = [
        [
            (
                won,
                [
                    ("/".join(f"{p}:{a}" for p, a in steps[:t]) + f"/{steps[t][0]}", a)
                    for t, (_, a) in enumerate(steps)
                ],
            )
            for won, steps in group
        ]
        for group in groups
    ]
    table = table_of(told)
    got = Pipeline.from_config({"returns": {}, "progpo_peer": {"norm": norm, "transition": 0.0}}).run(table)
    want = Pipeline.from_config({"returns": {}, "gigpo": {"norm": norm}}).run(table)
    np.testing.assert_allclose(got.advantage, want.advantage, atol=1e-12)


@FAST
@given(groups=groups)
def test_undiscounted_changes_add_up_to_the_ends(groups):
    """Σ_t δ_t = Σ_t r_t − Φ(s_0): nothing is won or lost on the way."""
    table = table_of(groups)
    result = progpo(depths=3).run(table)
    delta, potential = (result.columns[f"progpo_peer.{name}"] for name in ("transition", "potential"))
    for k in np.unique(table.trajectory):
        rows = np.flatnonzero(table.trajectory == k)
        members = result.returns[table.group == table.group[rows[0]]]
        if np.ptp(members) > 0:  # else there is nothing to tell apart, and δ is 0
            assert delta[rows].sum() == pytest.approx(table.reward[rows].sum() - potential[rows[0]], abs=1e-9)
        else:
            assert not delta[rows].any()


def test_penalties_stay_with_their_step():
    table = table_of(
        [[(True, path("x:go y:take z:open")), (False, path("x:look z:look"))]],
        valid=[True, True, True, True, False],
    )
    result = Pipeline.from_config(
        {
            "returns": {"gamma": 1.0, "invalid_penalty": 0.1},
            "progpo_peer": {"norm": "mean", "semantic": "exact", "potential_gamma": 1.0, "depths": 1},
        }
    ).run(table)
    # C's z: -0.1 now, the end is worth 0, and A had 10 from there
    assert result.columns["progpo_peer.transition"][4] == pytest.approx(-0.1 - 10)


class Equal:
    def score(self, pairs):
        return np.array([float(a == b) for a, b in pairs])


class Characters:
    def score(self, pairs):
        return np.array([SequenceMatcher(None, a, b).ratio() for a, b in pairs])


@FAST
@given(groups=groups, scorer=st.sampled_from([("exact", Equal()), ("difflib", Characters())]))
def test_a_scorer_that_compares_like_the_others_gives_the_same(groups, scorer):
    kind, service = scorer
    names = {"a": "You are at shelf 1.", "b": "You are at shelf 2.", "c": "A door"}
    table = table_of([[(won, [(names[p], a) for p, a in steps]) for won, steps in g] for g in groups])
    stage = {"similarity": 0.9, "fill_mode": "add"}
    want = Pipeline.from_config({"returns": {}, "progpo_peer": stage | {"semantic": kind}}).run(table)
    method = Pipeline.from_config({"returns": {}, "progpo_peer": stage | {"semantic": "encoder"}})
    got = method.run(table, {"pair_scorer": service})
    assert got.advantage.tolist() == want.advantage.tolist()


def test_only_the_encoder_needs_a_scorer():
    assert ProGPOPeer(semantic="encoder").requires == {"pair_scorer"}
    assert ProGPOPeer().requires == frozenset()


def test_an_earlier_stages_credit_for_lone_rows_is_added():
    table = by_hand()
    zero = np.zeros(len(table))
    signals = Signals(np.array([10.0] * 3 + [0.0] * 5), table.outcome, zero)
    stage = ProGPOPeer(norm="mean", transition=0.0)
    plain = stage.estimate(table, signals, Context()).advantage
    lifted = stage.estimate(table, Signals(signals.returns, signals.score, zero + 0.5), Context()).advantage
    np.testing.assert_allclose(lifted - plain, [0, 0, 0.5, 0, 0, 0.5, 0, 0.5], atol=1e-12)
