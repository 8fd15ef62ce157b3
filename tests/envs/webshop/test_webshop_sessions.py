"""The table of sessions: closed when told, dropped when idle, never more than it may hold."""

from __future__ import annotations

import pytest

from envs.base import EnvError
from envs.webshop import SessionTable, WebshopEnv
from tests.envs.webshop.small_shop import goal_of, small_shop

SHOP = small_shop()
MUG = goal_of(SHOP, "B000000001")


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def table(clock):
    return SessionTable(lambda: WebshopEnv(SHOP), limit=3, idle_seconds=10, clock=clock)


def test_sessions_do_not_see_each_other(table):
    (one, start), (two, _) = table.open(MUG), table.open(MUG)
    assert one != two and start.admissible == ("search[<your query>]",)
    table.step(one, "search[stone]")
    assert "Page 1" in table.step(two, "search[mug]").observation.text
    assert "Blue Stone Mug" in table.step(one, "click[b000000001]").observation.text


def test_closing_is_final_and_can_be_repeated(table):
    name, _ = table.open(MUG)
    table.close(name)
    table.close(name)
    assert len(table) == 0
    with pytest.raises(EnvError, match=f"no session '{name}'"):
        table.step(name, "search[mug]")
    assert table.open(MUG)[0] != name  # names are not used again


def test_a_full_table_says_so(table):
    names = [table.open(MUG)[0] for _ in range(3)]
    with pytest.raises(EnvError, match="3 sessions are open"):
        table.open(MUG)
    table.close(names[1])
    assert table.open(MUG)


def test_the_idle_make_room_and_the_used_stay(table, clock):
    names = [table.open(MUG)[0] for _ in range(3)]
    clock.now = 9
    table.step(names[1], "search[mug]")
    clock.now = 11
    table.open(MUG)
    assert len(table) == 2
    with pytest.raises(EnvError, match="no session"):
        table.step(names[0], "search[mug]")
    assert table.step(names[1], "click[back to search]")


def test_expire_names_what_it_closed(table, clock):
    name, _ = table.open(MUG)
    assert table.expire() == []
    clock.now = 10.5
    assert table.expire() == [name]
    assert len(table) == 0


def test_a_task_that_is_refused_leaves_no_session(table):
    with pytest.raises(EnvError, match="Goal tasks"):
        table.open("a mug")
    assert len(table) == 0


def test_memory_stays_bounded(table, clock):
    for _ in range(200):
        table.open(MUG)
        clock.now += 11
    assert len(table) <= 3


@pytest.mark.parametrize("options", [{"limit": 0}, {"idle_seconds": 0}])
def test_a_table_that_lets_nothing_in_is_refused(options):
    with pytest.raises(EnvError, match="at least 1"):
        SessionTable(lambda: WebshopEnv(SHOP), **options)
