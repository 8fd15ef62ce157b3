"""How some of a split's tasks are taken: laws of the choice, and what it chooses."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.subset import Roster, subset, turns
from tests.toy import toy_tasks

# Sizes of families: alike, and one large beside many of one task, where divisor methods break the quota.
SIZES = st.lists(st.integers(1, 15), min_size=1, max_size=6) | st.builds(
    lambda large, ones: [large, *[1] * ones], st.integers(20, 90), st.integers(1, 30)
)
OFFICIAL = {"simple": 790, "look": 308, "clean": 650, "heat": 459, "cool": 533, "two": 813}


def split_of(sizes):
    """Ids and families of a split with families of these sizes; ids do not tell the family."""
    families = [f"family {k}" for k, size in enumerate(sizes) for _ in range(size)]
    return [f"task {place}" for place in range(len(families))], families


def within(count, numerator, denominator):
    """Whether a count is a fraction, rounded up or down."""
    return numerator // denominator <= count <= -(-numerator // denominator)


@settings(deadline=None)
@given(SIZES)
def test_turns_give_every_family_its_share_rounded_up_or_down(sizes):
    named = {f"family {k}": size for k, size in enumerate(sizes)}
    total, had = sum(sizes), Counter()
    for t, family in enumerate(turns(named), start=1):
        had[family] += 1
        assert all(within(had[name], t * size, total) for name, size in named.items())
    assert had == named


def test_turns_worked_out_by_hand():
    """Shares after 1, 2, 3, 4 turns: a ½, 1, 1½, 2; b and c ¼, ½, ¾, 1.

    a needs its first turn by the second, b and c theirs by the fourth: a. Its next one may come when its
    share exceeds 1, at the third, so now b or c: b by name. Then a or c, both by the fourth: a. Then c.
    """
    assert list(turns({"c": 1, "b": 1, "a": 2})) == ["a", "b", "a", "c"]


@settings(deadline=None, max_examples=40)
@given(SIZES, st.integers(0, 3), st.randoms(use_true_random=False))
def test_the_choice_depends_on_names_number_and_seed_alone(sizes, seed, rng):
    ids, families = split_of(sizes)
    shuffled = list(range(len(ids)))
    rng.shuffle(shuffled)
    n = rng.randint(0, len(ids))
    chosen = [ids[place] for place in subset(ids, families, n, seed)]
    other = [ids[place] for place in shuffled], [families[place] for place in shuffled]
    assert [other[0][place] for place in subset(*other, n, seed)] == chosen
    assert len(chosen) == len(set(chosen)) == n
    for family, count in Counter(families).items():
        own = sum(families[ids.index(name)] == family for name in chosen)
        assert within(own, n * count, len(ids))


@settings(deadline=None, max_examples=40)
@given(SIZES, st.integers(0, 3))
def test_a_smaller_choice_begins_a_larger_one(sizes, seed):
    ids, families = split_of(sizes)
    whole = subset(ids, families, len(ids), seed)
    assert sorted(whole) == list(range(len(ids)))
    for n in range(len(ids)):
        assert subset(ids, families, n, seed) == whole[:n]


def test_seeds_choose_every_task_alike():
    """Of 20 tasks 5, with 2,000 seeds: each is chosen 500 times, sd 19.4; none is more than 5 sd off."""
    ids, families = split_of([20])
    times = Counter(place for seed in range(2000) for place in subset(ids, families, 5, seed))
    assert all(abs(times[place] - 500) < 97 for place in range(20))


def test_forty_of_the_official_games():
    ids, families = [], []
    for family, size in OFFICIAL.items():  # as in a folder: all of one family beside each other
        ids += [f"{family}/{number}" for number in range(size)]
        families += [family] * size
    for n in (6, 40, 1000):
        counts = Counter(families[place] for place in subset(ids, families, n, 0))
        shares = {family: n * size / len(ids) for family, size in OFFICIAL.items()}
        assert all(abs(counts[family] - share) < 1 for family, share in shares.items())


def test_what_cannot_be_chosen_is_refused():
    with pytest.raises(ValueError, match="3 of 2"):
        subset(["a", "b"], ["f", "f"], 3, 0)
    with pytest.raises(ValueError, match="two tasks have one id, such as 'a'"):
        subset(["a", "b", "a"], ["f", "f", "f"], 1, 0)


def test_a_roster_gives_the_whole_split_as_it_is_and_parts_by_the_rule():
    tasks = toy_tasks(30)
    roster = Roster.of(tasks)
    for n in (None, 30, 31):
        chosen = roster.choose(n, 0)
        assert list(chosen.tasks) == tasks and len(chosen) == chosen.of == 30
        assert list(zip(*chosen.names, strict=True)) == [(task.id, task.family) for task in tasks]
    chosen = roster.choose(7, 0)
    assert len(chosen) == 7 and chosen.of == 30
    assert list(zip(*chosen.names, strict=True)) == [(task.id, task.family) for task in chosen.tasks]
    mixed = random.Random(3).sample(tasks, 30)
    assert Roster.of(mixed).choose(7, 0).tasks == chosen.tasks
    assert any(Roster.of(tasks).choose(7, seed).tasks != chosen.tasks for seed in (1, 2))
    assert list(itertools.islice(roster.choose(12, 0).tasks, 7)) == list(chosen.tasks)
