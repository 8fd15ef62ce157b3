"""ProVer: which segment is verified, and what a verified gain does to the advantage."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from credit.parts.continuations import PROPOSERS, Candidate, Segment, candidates
from credit.signals import Context
from credit.table import StepTable
from tests.credit.teacher_tables import random_columns, reordered, run

FAST = settings(max_examples=12, deadline=None, derandomize=True)
seeds = st.integers(0, 10_000)
DEFAULTS = dict(proposer="first_divergence", min_successes=1, max_successes=3, max_steps=4)


def table_of(*trajectories, **columns):
    """One group of (success, "abc…"): a step for each letter, its place and its action."""
    steps = [(k, t, won, path) for k, (won, path) in enumerate(trajectories) for t in range(len(path))]
    return StepTable(
        **{
            "group": [0] * len(steps),
            "trajectory": [10 * k for k, *_ in steps],
            "t": [t for _, t, *_ in steps],
            "success": [won for *_, won, _ in steps],
            "reward": [10.0 * (won and t == len(path) - 1) for _, t, won, path in steps],
            "outcome": [10.0 * won for *_, won, _ in steps],
            "anchor": [f"at {path[:t]}" for _, t, _, path in steps],
            "action": [path[t] for _, t, _, path in steps],
            **columns,
        }
    )


def propose(table, **options):
    return candidates(table, **{**DEFAULTS, "rng": Context(seed=1).rng} | options)


class Played:
    """A service that finds the same success rates everywhere, and remembers what it was asked."""

    def __init__(self, before=0.25, after=0.75, **changes):
        self.rates, self.changes, self.asked = (before, after), changes, []

    def segments(self, table, candidates, samples):
        self.asked.append((list(candidates), samples))
        before, after = self.rates
        return [
            Segment(
                **dict(trajectory=c.trajectory, start=c.start, end=c.end) | self.changes,
                gain=after - before,
                before=before,
                after=after,
                samples=samples,
            )
            for c in candidates
        ]


def test_the_segment_starts_where_the_success_leaves_its_closest_failure():
    table = table_of((True, "abcdefgh"), (False, "abx"), (False, "abcyz"), (False, "q"))
    assert propose(table) == [Candidate(0, 3, 7)]
    assert propose(table, max_steps=2) == [Candidate(0, 3, 5)]


def test_the_last_step_is_never_part_of_it():
    assert propose(table_of((True, "abcd"), (False, "abx"))) == [Candidate(0, 2, 3)]
    assert propose(table_of((True, "abc"), (False, "abx"))) == []
    assert propose(table_of((True, "a"), (False, "b"))) == []


def test_the_shortest_success_is_taken_and_ties_go_by_text():
    table = table_of((True, "pqrs"), (True, "abc"), (True, "aac"), (False, "xyz"))
    assert propose(table) == [Candidate(20, 0, 2)]


@pytest.mark.parametrize(("wins", "proposed"), [(0, False), (1, True), (3, True), (4, False), (8, False)])
def test_only_groups_with_few_successes_are_eligible(wins, proposed):
    table = table_of(*[(k < wins, f"a{k}cd") for k in range(8)])
    assert bool(propose(table)) == proposed
    assert bool(propose(table, max_successes=8)) == (0 < wins < 8)
    assert not propose(table, min_successes=5)


def test_each_group_has_a_proposal_of_its_own():
    table = table_of(
        (True, "abcd"), (False, "ax"), (True, "ab"), (True, "pqrs"), (False, "pqrt"), (False, "u")
    )
    groups = dict(zip((0, 10, 20, 30, 40, 50), (0, 0, 1, 2, 2, 2), strict=True))
    split = replace(table, group=[groups[k] for k in table.trajectory])
    assert propose(split, min_successes=1) == [Candidate(0, 1, 3)]  # the last group differs at its end only
    assert propose(replace(split, action=["z" * k for k in table.trajectory]))[1] == Candidate(30, 0, 3)


@FAST
@given(seed=seeds, proposer=st.sampled_from(["first_divergence", "random"]), max_steps=st.integers(1, 5))
def test_every_proposal_is_a_stretch_of_a_success(seed, proposer, max_steps):
    table = StepTable(**random_columns(seed)).canonical()[0]
    for c in propose(table, proposer=proposer, max_steps=max_steps):
        rows = np.flatnonzero(table.trajectory == c.trajectory)
        assert table.success[rows].all()
        assert 0 <= c.start < c.end <= len(rows) - 1 and c.end - c.start <= max_steps


def test_random_proposals_reach_every_stretch_and_depend_on_seed_and_update_alone():
    table = table_of((True, "abcd"), (False, "abx"))
    drawn = {
        (c.start, c.end)
        for step in range(200)
        for c in propose(table, proposer="random", max_steps=2, rng=Context(seed=1, step=step).rng)
    }
    assert drawn == {(0, 1), (0, 2), (1, 2), (1, 3), (2, 3)}
    again = [propose(table, proposer="random", rng=Context(seed=5, step=2).rng) for _ in range(2)]
    assert again[0] == again[1]


def test_a_judge_is_asked_and_only_a_real_stretch_counts():
    table = table_of((False, "abx"), (True, "abcdef"), (False, "q"))
    seen = []

    def judge(answer):
        def ask(table, success, failures):
            seen.append((success, failures))
            return answer

        return ask

    assert propose(table, proposer="judge", judge=judge((1, 3))) == [Candidate(10, 1, 3)]
    assert seen[0] == (range(3, 9), [range(0, 3), range(9, 10)])
    for wrong in (None, (-1, 2), (2, 2), (3, 6), (0, 5)):
        assert propose(table, proposer="judge", judge=judge(wrong)) == []


def test_prover_by_hand():
    """A = 7.5 and -2.5; a gain of 1/2 of a success worth 10 on steps 1 and 2."""
    table = table_of((True, "abcd"), *[(False, "ax")] * 3)
    played = Played()
    result = run({"grpo": {"norm": "mean"}, "prover": {}}, table, {"continuations": played})
    assert played.asked == [([Candidate(0, 1, 3)], 8)]
    np.testing.assert_allclose(result.advantage, [7.5, 12.5, 12.5, 7.5, *[-2.5] * 6])
    assert result.columns["prover.bonus"].tolist() == [0, 5, 5, 0, *[0] * 6]
    assert result.columns["prover.gain"].tolist() == [0, 0.5, 0.5, 0, *[0] * 6]
    assert result.metrics["credit/prover/proposed_groups"] == 1
    assert result.metrics["credit/prover/continuations"] == 16
    half = {"lam": 0.5, "gain_unit": "raw", "samples": 2}
    result = run({"grpo": {"norm": "mean"}, "prover": half}, table, {"continuations": played})
    np.testing.assert_allclose(result.advantage[:4], [7.5, 7.75, 7.75, 7.5])
    assert played.asked[-1][1] == 2


@pytest.mark.parametrize(("before", "after"), [(0.5, 0.5), (0.75, 0.0)])
def test_a_gain_that_is_not_above_zero_changes_nothing(before, after):
    table = table_of((True, "abcd"), (False, "ax"))
    services = {"continuations": Played(before, after)}
    result = run({"grpo": {}, "prover": {}}, table, services)
    assert result.advantage.tolist() == run({"grpo": {}}, table).advantage.tolist()
    assert result.columns["prover.segment"].sum() == 2
    assert result.metrics["credit/prover/verified_fraction"] == 0


@FAST
@given(seed=seeds)
def test_without_weight_or_answer_it_is_the_base(seed):
    table = StepTable(**random_columns(seed))
    plain = run({"grpo": {}}, table).advantage.tolist()
    assert (
        run({"grpo": {}, "prover": {"lam": 0.0}}, table, {"continuations": Played()}).advantage.tolist()
        == plain
    )

    class Silent:
        def segments(self, table, candidates, samples):
            return []

    assert run({"grpo": {}, "prover": {}}, table, {"continuations": Silent()}).advantage.tolist() == plain


def test_nobody_is_asked_without_a_proposal():
    played = Played()
    for table in (table_of(), table_of((True, "abc")), table_of((False, "abc"), (False, "abd"))):
        result = run({"grpo": {}, "prover": {}}, table, {"continuations": played})
        assert not result.advantage.any() and played.asked == []
        assert all(np.isfinite(value) for value in result.metrics.values())


@FAST
@given(seed=seeds, shuffle=st.randoms(use_true_random=False))
def test_row_order_and_names_change_nothing(seed, shuffle):
    columns = random_columns(seed)
    columns["observation"] = [f"row {i}" for i in range(len(columns["t"]))]  # no two trajectories alike
    services = {"continuations": Played()}
    for proposer in ("first_divergence", "random"):
        method = {"grpo": {}, "prover": {"proposer": proposer}}
        straight = run(method, StepTable(**columns), services).advantage
        order = list(range(len(columns["t"])))
        shuffle.shuffle(order)
        mixed = run(method, StepTable(**reordered(columns, order)), services).advantage
        assert mixed.tolist() == straight[order].tolist()
        renamed = dict(columns)
        ids = sorted(set(columns["trajectory"]))
        new = dict(zip(ids, shuffle.sample(range(-50, 50), len(ids)), strict=True))
        renamed["trajectory"] = [new[i] for i in columns["trajectory"]]
        np.testing.assert_allclose(run(method, StepTable(**renamed), services).advantage, straight)


def test_it_adds_to_token_advantages_too():
    length = [2, 1, 3, 2, 2, 0]
    tokens = {name: np.linspace(-2, scale, 10) for name, scale in (("logp_sampled", -1), ("logp_peer", 0))}
    table = table_of((True, "abcd"), (False, "ax"), length=length, tokens=tokens)
    services = {"continuations": Played()}
    by_token = run({"grpo": {}, "rlsd": {}, "prover": {}}, table, services).token_advantage
    without = run({"grpo": {}, "rlsd": {}}, table).token_advantage
    np.testing.assert_allclose(by_token - without, [0, 0, 5, 5, 5, 5, 0, 0, 0, 0], atol=1e-12)


def test_errors_say_what_to_do():
    table = table_of((True, "abcd"), (False, "ax"))
    with pytest.raises(ValueError, match="credit.prover needs the service 'continuations', got none"):
        run({"grpo": {}, "prover": {}}, table)
    with pytest.raises(ValueError, match="there is no service 'judge', got .'continuations'.; pass"):
        run({"grpo": {}, "prover": {"proposer": "judge"}}, table, {"continuations": Played()})
    for wrong in ({"trajectory": 10}, {"start": 0}, {"end": 4}):
        with pytest.raises(ValueError, match="answered Segment.*, which nobody asked"):
            run({"grpo": {}, "prover": {}}, table, {"continuations": Played(**wrong)})
    with pytest.raises(ValueError, match="is not finite; expected after - before"):
        run({"grpo": {}, "prover": {}}, table, {"continuations": Played(after=float("nan"))})
    assert set(PROPOSERS) == {"first_divergence", "random", "judge"}
