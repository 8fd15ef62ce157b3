"""Lessons: full scores, equal for equal seeds, within the ranges they are told."""

from __future__ import annotations

from itertools import islice

from envs.webshop.demonstrate import WebshopLessons
from envs.webshop.reading import read_page

LESSONS = WebshopLessons(products=120, walks=40)


def test_every_walk_ends_with_a_full_score_and_is_put_as_the_policy_will_see_it():
    walks = list(LESSONS(0, 3))
    assert len(walks) >= 10
    for walk in walks:
        assert walk.outcome.score == 1.0 and len(walk.steps) <= 15
        assert walk.steps[-1].action == "click[buy now]"
        assert all(walk.instruction not in step.observation.text for step in walk.steps)


def test_equal_arguments_give_equal_walks_and_shards_differ():
    first, again, other = (list(islice(LESSONS(*key), 8)) for key in ((0, 0), (0, 0), (0, 1)))
    assert first == again
    assert {walk.instruction for walk in first}.isdisjoint(walk.instruction for walk in other)
    assert first != list(islice(LESSONS(1, 0), 8))


def test_ranges_are_kept_shard_by_shard():
    few = WebshopLessons(products=120, walks=12, difficulty=(0.0, 0.0), results_a_page=(2, 2))
    views = [read_page(step.observation) for walk in few(0, 0) for step in walk.steps]
    assert max(len(view.offers) for view in views) == 2
    assert max(len(values) for view in views for _, values in view.options) == 1
    careful = WebshopLessons(products=120, walks=12, mistakes=(0.0, 0.0))
    assert not any(step.mistake for walk in careful(0, 0) for step in walk.steps)
